"""Functions and modules whose forward and backward are replayed from graphs, as `torch.cuda.make_graphed_callables`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import _C
from .streams import Stream, StreamContext

Graphable = torch.nn.Module | Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]


def make_graphed_callables(
    callables: Graphable | tuple[Graphable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Record each callable's forward and backward once, and return callables that replay them.

    Args:
        callables: a module or function, or a tuple of them in the order in which they will run.
        sample_args: its arguments, or a tuple of them for a tuple of callables: tensors only, with the shapes and the
            `requires_grad` that the later arguments will have.
        num_warmup_iters: how often each runs before it is recorded.
        allow_unused_input: whether an input may have no gradient.
        pool: a memory pool to share; see `torch.neuron.graph_pool_handle`.

    A module is returned itself, with a new `forward`, which replays while the module is in the training mode that it
    was recorded in. Raises RuntimeError where the autocast cache is on, or a module has hooks or buffers that need
    gradients.
    """
    if torch.is_autocast_enabled("neuron") and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support the autocast cache: set `cache_enabled=False`")
    single = not isinstance(callables, tuple)
    sources: tuple[Graphable, ...] = (callables,) if not isinstance(callables, tuple) else callables
    samples: tuple[tuple[Any, ...], ...] = (sample_args,) if single else sample_args
    for source, args in zip(sources, samples, strict=True):
        _check(source, args)

    pool = _C.new_pool_id() if pool is None else pool
    recordings = [_Recording(source, args, allow_unused_input) for source, args in zip(sources, samples, strict=True)]
    _C.synchronize_device(_C.current_device())
    with StreamContext(Stream()):
        for recording in recordings:
            recording.warm_up(num_warmup_iters)
    _C.synchronize_device(_C.current_device())
    # In the order in which they will run, since they share memory.
    for recording in recordings:
        recording.record_forward(pool)
    for recording in reversed(recordings):
        recording.record_backward(pool)
    results = tuple(recording.graphed() for recording in recordings)
    return results[0] if single else results


def _check(source: Graphable, args: tuple[Any, ...]) -> None:
    if not all(isinstance(arg, torch.Tensor) for arg in pytree.arg_tree_leaves(*args)):
        raise TypeError("sample_args for each callable must contain only Tensors. Other types are not allowed.")
    if isinstance(source, torch.nn.Module):
        if source._backward_hooks or source._forward_hooks or source._forward_pre_hooks:
            raise RuntimeError(
                "Modules must not have hooks registered at the time they are passed. However, registering hooks "
                "on modules after passing them through make_graphed_callables is allowed."
            )
        if any(buffer.requires_grad for buffer in source.buffers()):
            raise RuntimeError("Only parameters may be trainable. All buffers must have ``requires_grad=False``.")


class _Recording:
    """One callable's two graphs and the tensors that they read and write."""

    def __init__(self, source: Graphable, args: tuple[Any, ...], allow_unused: bool) -> None:
        self.source = source
        self.args = args
        self.allow_unused = allow_unused
        self.parameters: Tensors = tuple(source.parameters()) if isinstance(source, torch.nn.Module) else ()
        self.user_inputs: Tensors = tuple(pytree.arg_tree_leaves(*args))
        self.inputs = self.user_inputs + self.parameters
        self.forward_graph = torch.accelerator.Graph()
        self.backward_graph = torch.accelerator.Graph()
        self.outputs: Tensors = ()
        self.output_spec: Any = None
        self.grad_outputs: tuple[torch.Tensor | None, ...] = ()
        self.grad_inputs: tuple[torch.Tensor | None, ...] = ()

    def run(self) -> Tensors:
        outputs, self.output_spec = pytree.tree_flatten(self.source(*self.args))
        return tuple(outputs)

    def gradients(self, outputs: Sequence[torch.Tensor], grad_outputs: Sequence[torch.Tensor | None]) -> list[Any]:
        """The gradients of the inputs that need one, in their order."""
        trainable = tuple(output for output in outputs if output.requires_grad)
        wanted = tuple(tensor for tensor in self.inputs if tensor.requires_grad)
        if not trainable or not wanted:
            return [None] * len(wanted)
        grads = tuple(grad for grad in grad_outputs if grad is not None)
        return list(torch.autograd.grad(trainable, wanted, grads, allow_unused=self.allow_unused))

    def warm_up(self, iterations: int) -> None:
        for _ in range(iterations):
            outputs = self.run()
            self.gradients(outputs, [torch.empty_like(o) if o.requires_grad else None for o in outputs])

    def record_forward(self, pool: tuple[int, int]) -> None:
        from .graphs import graph

        with graph(self.forward_graph, pool):
            self.outputs = self.run()

    def record_backward(self, pool: tuple[int, int]) -> None:
        from .graphs import graph

        self.grad_outputs = tuple(torch.empty_like(o) if o.requires_grad else None for o in self.outputs)
        if not any(grad is not None for grad in self.grad_outputs):
            self.grad_inputs = (None,) * len(self.inputs)
            return
        with graph(self.backward_graph, pool):
            grads = iter(self.gradients(self.outputs, self.grad_outputs))
        self.grad_inputs = tuple(next(grads) if tensor.requires_grad else None for tensor in self.inputs)
        # The autograd graph would tie the parameters' gradients to the stream of the recording.
        self.outputs = tuple(output.detach() for output in self.outputs)

    def graphed(self) -> Graphable:
        replay = self._replaying_function()

        def functional(*args: Any) -> Any:
            outputs = replay.apply(*pytree.arg_tree_leaves(*args), *self.parameters)
            return pytree.tree_unflatten(outputs, self.output_spec)

        module = self.source
        if not isinstance(module, torch.nn.Module):
            return functional
        mode, original = module.training, module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            return functional(*args, **kwargs) if module.training == mode else original(*args, **kwargs)

        module.forward = forward
        return module

    def _replaying_function(self) -> Any:
        recording = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: torch.Tensor) -> Tensors:
                # The parameters, behind the user's inputs, are the recorded ones themselves.
                for recorded, given in zip(recording.user_inputs, inputs, strict=False):
                    if recorded.data_ptr() != given.data_ptr():
                        recorded.copy_(given)
                recording.forward_graph.replay()
                return tuple(output.detach() for output in recording.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                for recorded, given in zip(recording.grad_outputs, grads, strict=True):
                    if recorded is not None and recorded.data_ptr() != given.data_ptr():
                        recorded.copy_(given)
                if any(grad is not None for grad in recording.grad_outputs):
                    recording.backward_graph.replay()
                return tuple(None if grad is None else grad.detach() for grad in recording.grad_inputs)

        return Graphed
