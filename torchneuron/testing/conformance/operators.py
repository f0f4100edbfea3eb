"""Checks of one operator of the database against what `cpu` gives."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

from ... import neuron
from .comparison import DEVICE, compare_calls, compare_errors, copy, move, seed
from .outcomes import Mismatch, Outcome, SamplesUnavailable, Tally, first_line, outcomes_of

# Their results hold whatever the memory held.
UNDEFINED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
# Take indices on the host whatever the device of their input.
TAKE_HOST_TENSORS = frozenset({"tensor_split"})
# Derivatives beyond the first are checked where PyTorch checks its own.
EXACT_DTYPES = (torch.float64, torch.complex128)
MOST_SAMPLES = 60

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]
Check = Callable[[OpInfo, torch.dtype], Tally]


def names() -> list[str]:
    """The operators of the database, such as "add" and "std.unbiased"."""
    return [full_name(op) for op in op_db]


def check(name: str, dtypes: Iterable[torch.dtype] | None = None) -> Iterator[Outcome]:
    """The outcomes of all checks of the operator of this name; `dtypes` are all that `cpu` supports by default."""
    op = _by_name()[name]
    supported = op.supported_dtypes("cpu")
    wanted = supported if dtypes is None else supported & set(dtypes)
    for dtype in sorted(wanted, key=str):
        dtype_name = str(dtype).removeprefix("torch.")
        for check_name, function in CHECKS.items():
            yield from outcomes_of("operators", name, check_name, dtype_name, functools.partial(function, op, dtype))


@functools.cache
def _by_name() -> dict[str, OpInfo]:
    return {full_name(op): op for op in op_db}


def full_name(op: OpInfo) -> str:
    """The name with that of the variant, such as "std.unbiased"."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def forward(op: OpInfo, dtype: torch.dtype) -> Tally:
    return compare_each(op, _samples(op, dtype), op.op)


def method(op: OpInfo, dtype: torch.dtype) -> Tally:
    return compare_each(op, _samples(op, dtype), op.method_variant)


def non_contiguous(op: OpInfo, dtype: torch.dtype) -> Tally:
    samples = (s for s in _samples(op, dtype) if _all_strided(s))
    return compare_each(op, (sample.noncontiguous() for sample in samples), op.op)


def channels_last(op: OpInfo, dtype: torch.dtype) -> Tally:
    samples = (s for s in _samples(op, dtype) if isinstance(s.input, torch.Tensor) and s.input.dim() == 4)
    to_channels_last = (
        SampleInput(s.input.to(memory_format=torch.channels_last), args=s.args, kwargs=s.kwargs) for s in samples
    )
    return compare_each(op, to_channels_last, op.op)


def in_place(op: OpInfo, dtype: torch.dtype) -> Tally:
    variant: Callable[..., Any] | None = op.inplace_variant

    def call(arguments: Arguments) -> Any:
        inputs, args, kwargs = arguments
        return variant(inputs, *args, **kwargs), inputs  # type: ignore[misc]

    return compare(
        op, (s for s in _samples(op, dtype) if not s.broadcasts_input), call if variant is not None else None
    )


def out(op: OpInfo, dtype: torch.dtype) -> Tally:
    """With an `out=` of the right size, then an empty one, then one that is not contiguous."""
    if not op.supports_out:
        return Tally()
    forms: itertools.cycle[Callable[[torch.Tensor], torch.Tensor]] = itertools.cycle(
        (
            torch.zeros_like,
            lambda t: t.new_empty(0),
            lambda t: torch.zeros((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 0],
        )
    )
    tally = Tally()
    for sample in _samples(op, dtype):
        try:
            inputs, args, kwargs = copy(_arguments(sample))
            expected = op.op(inputs, *args, **kwargs)
        except Exception:
            continue
        if not all(torch.is_tensor(leaf) and leaf.layout == torch.strided for leaf in tree_leaves(expected)):
            continue
        form = next(forms)
        outputs = tree_map(lambda t, form=form: form(t.detach()), expected)

        def call(arguments: tuple[Arguments, Any]) -> Any:
            (inputs, args, kwargs), outputs = arguments
            return op.op(inputs, *args, **kwargs, out=outputs), outputs

        _add(tally, op, (_arguments(sample), outputs), call)
    return tally


def backward(op: OpInfo, dtype: torch.dtype) -> Tally:
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        return Tally()
    return compare(op, _samples(op, dtype, requires_grad=True), lambda a: gradients(op, a, a), strides=False)


def second_derivative(op: OpInfo, dtype: torch.dtype) -> Tally:
    if not op.supports_gradgrad or dtype not in EXACT_DTYPES or dtype not in op.supported_backward_dtypes("cpu"):
        return Tally()

    def call(arguments: Arguments) -> Any:
        first = [g for g in gradients(op, arguments, arguments, create_graph=True) if g is not None]
        return _gradients_of([g for g in first if g.requires_grad], _leaves(arguments))

    return compare(op, _samples(op, dtype, requires_grad=True), call, strides=False)


def forward_mode(op: OpInfo, dtype: torch.dtype) -> Tally:
    if not op.supports_forward_ad or dtype not in EXACT_DTYPES:
        return Tally()

    def call(arguments: Arguments) -> Any:
        with forward_ad.dual_level():
            inputs, args, kwargs = tree_map(_dual, arguments)
            result = op.op(inputs, *args, **kwargs)
            return [tuple(forward_ad.unpack_dual(t)) for t in tree_leaves(result) if isinstance(t, torch.Tensor)]

    return compare(op, _samples(op, dtype), call, strides=False)


def vmap(op: OpInfo, dtype: torch.dtype) -> Tally:
    """Over a batch of two, of which one is the other reversed along its last dimension."""
    if dtype not in (torch.float32, torch.int64):
        return Tally()

    def call(arguments: Arguments) -> Any:
        inputs, args, kwargs = arguments
        if not isinstance(inputs, torch.Tensor):
            return op.op(inputs, *args, **kwargs)
        batch = torch.stack([inputs, inputs.flip(-1) if inputs.dim() else inputs])
        return torch.vmap(lambda one: op.op(one, *args, **kwargs), randomness="different")(batch)

    return compare(op, _samples(op, dtype), call, strides=False)


def reference(op: OpInfo, dtype: torch.dtype) -> Tally:
    """PyTorch's reference inputs: extremal values, type promotion, broadcasts, odd sizes."""
    if dtype not in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        return Tally()
    return compare_each(op, generated(op, lambda: op.reference_inputs("cpu", dtype)), op.op)


def error_inputs(op: OpInfo, dtype: torch.dtype) -> Tally:
    """Inputs that `cpu` refuses; checked once, with the dtypes that the database gives them."""
    tally = Tally()
    if op.error_inputs_func is None or dtype != min(op.supported_dtypes("cpu"), key=str):
        return tally
    for error_input in generated(op, lambda: op.error_inputs("cpu")):
        arguments = _arguments(error_input.sample_input)
        expected, raised = _error_of(op, copy(arguments)), _error_of(op, _moved(op, arguments))
        if expected is None:
            continue
        tally.samples += 1
        try:
            compare_errors(expected, raised)
        except Mismatch as mismatch:
            tally.reason = tally.reason or str(mismatch)
    return tally


CHECKS: dict[str, Check] = {
    "forward": forward,
    "method": method,
    "non-contiguous": non_contiguous,
    "channels last": channels_last,
    "in place": in_place,
    "out=": out,
    "backward": backward,
    "second derivative": second_derivative,
    "forward mode": forward_mode,
    "vmap": vmap,
    "reference": reference,
    "errors": error_inputs,
}


def compare_each(
    op: OpInfo, samples: Iterable[SampleInput], function: Callable[..., Any] | None, *, strides: bool = True
) -> Tally:
    """Counts the samples for which `function` does the same on both devices; None: there is no such function."""

    def call(arguments: Arguments) -> Any:
        inputs, args, kwargs = arguments
        return function(inputs, *args, **kwargs)  # type: ignore[misc]

    return compare(op, samples, call if function is not None else None, strides=strides)


def compare(
    op: OpInfo, samples: Iterable[SampleInput], call: Callable[[Any], Any] | None, *, strides: bool = True
) -> Tally:
    """As `compare_each`, for a function of all arguments as one tuple."""
    tally = Tally()
    if call is not None:
        for sample in samples:
            _add(tally, op, _arguments(sample), call, strides)
    return tally


def _add(tally: Tally, op: OpInfo, arguments: Any, call: Callable[[Any], Any], strides: bool = True) -> None:
    """Counts a sample, unless `cpu` raises too; its first difference becomes the tally's reason."""
    try:
        returned = compare_calls(
            functools.partial(call, copy(arguments)),
            functools.partial(_call_on_neuron, call, _moved(op, arguments)),
            values=op.name not in UNDEFINED,
            strides=strides,
        )
        tally.samples += returned
    except Mismatch as mismatch:
        if _repeats_on_cpu(call, arguments):
            tally.samples += 1
            tally.reason = tally.reason or f"sample {tally.samples}: {mismatch}"


def _repeats_on_cpu(call: Callable[[Any], Any], arguments: Any) -> bool:
    """Whether a second call gives what the first gave. Some kernels read memory that nobody wrote."""
    results = []
    for _ in range(2):
        seed()
        try:
            results.append([leaf.detach() for leaf in tree_leaves(call(copy(arguments))) if torch.is_tensor(leaf)])
        except Exception:
            return True
    try:
        torch.testing.assert_close(*results, equal_nan=True)
    except AssertionError:
        return False
    return True


def _moved(op: OpInfo, arguments: Any) -> Any:
    if op.name in TAKE_HOST_TENSORS:
        inputs, args, kwargs = arguments
        return move(inputs), *copy((args, kwargs))
    return move(arguments)


def _call_on_neuron(call: Callable[[Any], Any], arguments: Any) -> Any:
    """What has neither a tensor nor a device among its arguments is made on the default device."""
    if any(isinstance(leaf, torch.Tensor | torch.device) for leaf in tree_leaves(arguments)):
        return call(arguments)
    with DEVICE:
        return call(arguments)


def _all_strided(sample: SampleInput) -> bool:
    return all(leaf.layout == torch.strided for leaf in tree_leaves(_arguments(sample)) if torch.is_tensor(leaf))


def _samples(op: OpInfo, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[SampleInput]:
    return iter(_sample_list(full_name(op), dtype, requires_grad))


@functools.lru_cache(maxsize=2)  # the checks of one dtype follow each other and call with copies
def _sample_list(name: str, dtype: torch.dtype, requires_grad: bool) -> list[SampleInput]:
    op = _by_name()[name]
    return list(generated(op, lambda: op.sample_inputs("cpu", dtype, requires_grad=requires_grad)))


def generated(op: OpInfo, generator: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """At most `MOST_SAMPLES`, evenly chosen; the same ones in each run."""
    seed()
    try:
        samples = list(generator())
    except Exception as error:
        raise SamplesUnavailable(f"PyTorch's samples for cpu raise {first_line(error)}") from error
    step = -(-len(samples) // MOST_SAMPLES) or 1
    return iter(samples[::step])


def _arguments(sample: SampleInput) -> Arguments:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def _error_of(op: OpInfo, arguments: Arguments) -> Exception | None:
    inputs, args, kwargs = arguments
    try:
        op.op(inputs, *args, **kwargs)
        neuron.synchronize()
    except Exception as error:
        return error
    return None


def _leaves(arguments: Arguments) -> list[torch.Tensor]:
    return [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]


def gradients(op: OpInfo, arguments: Arguments, leaves_of: Arguments, create_graph: bool = False) -> Any:
    """The gradients of the operator's results in the tensors of `leaves_of` that require them."""
    inputs, args, kwargs = arguments
    result = op.op(inputs, *args, **kwargs)
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    return _gradients_of(outputs, _leaves(leaves_of), create_graph)


def _gradients_of(outputs: list[torch.Tensor], leaves: list[torch.Tensor], create_graph: bool = False) -> Any:
    if not outputs or not leaves:
        return ()
    weights = [_weights(output) for output in outputs]
    return torch.autograd.grad(outputs, leaves, weights, allow_unused=True, create_graph=create_graph)


def _weights(output: torch.Tensor) -> torch.Tensor:
    """Gradients of the result that differ from element to element and are the same on both devices."""
    if output.layout != torch.strided or output.is_nested:
        return output.detach()
    ramp = torch.arange(1, output.numel() + 1, dtype=torch.float64).div(output.numel()).reshape(output.shape)
    return ramp.to(output.dtype).to(output.device)


def _dual(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
        return forward_ad.make_dual(leaf.detach(), _weights(leaf.detach()))
    return leaf
