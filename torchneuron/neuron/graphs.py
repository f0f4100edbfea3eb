"""Graphs of `neuron`: work recorded once and queued again as a whole."""

from typing import Any, Literal

import torch

from .. import _C
from .graphed_callables import make_graphed_callables
from .memory import empty_cache
from .streams import Stream, StreamContext, current_stream

CaptureErrorMode = Literal["default", "global", "thread_local", "relaxed"]

__all__ = ["NeuronGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Whether a graph records the current stream. Does not start the device."""
    return _C.initialized() and current_stream().is_capturing()


def graph_pool_handle() -> tuple[int, int]:
    """A new memory pool for graphs that share their memory; see `NeuronGraph.capture_begin`."""
    return _C.new_pool_id()


class NeuronGraph(torch.accelerator.Graph):
    """Work recorded from a stream, replayed with the memory that it had at the recording.

    `torch.accelerator.Graph` with the calls of `torch.cuda.CUDAGraph`. Use it through `torch.neuron.graph`.
    """

    def __init__(self, keep_graph: bool = False, **options: Any) -> None:
        super().__init__(keep_graph, **options)
        self._generators: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let captures of this graph draw from `generator` beside the device's default one; call it before the capture.

        Each replay then draws anew, and moves the generator on by what it drew.
        """
        if not isinstance(generator, torch.Generator):
            raise TypeError(
                "register_generator_state(): argument 'generator' must be torch.Generator, "
                f"not {type(generator).__name__}"
            )
        if generator.device.type != "neuron":
            raise RuntimeError(f"Expected a 'neuron' device type for generator but found '{generator.device.type}'")
        self._generators.append(generator)

    def capture_begin(
        self, pool: tuple[int, int] | None = None, capture_error_mode: CaptureErrorMode | None = None
    ) -> None:
        """Record the current stream from here.

        Args:
            pool: another graph's `pool()`, or a `graph_pool_handle()`, to share memory with.
            capture_error_mode: as `torch.cuda.CUDAGraph`; other threads' work is never recorded here.
        """
        if pool is not None:
            self.graph_pool = pool
        if capture_error_mode is not None:
            self.capture_error_mode = capture_error_mode
        super().capture_begin()
        try:
            for generator in self._generators:
                _C.register_generator(generator)
        except RuntimeError:
            self.reset()
            raise


class graph:
    """Context manager: work of this thread within is recorded into `neuron_graph` and not run.

    Args:
        neuron_graph: what to record into.
        pool: another graph's `pool()`, or a `graph_pool_handle()`, to share memory with.
        stream: the stream to record, which is current within; by default a side stream kept for this.
        capture_error_mode: as `torch.cuda.graph`.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        neuron_graph: torch.accelerator.Graph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: CaptureErrorMode | None = None,
    ) -> None:
        if stream is None:
            if graph.default_capture_stream is None or graph.default_capture_stream.device_index != _C.current_device():
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.neuron_graph: Any = neuron_graph
        self.capture_stream = stream
        self._stream_context = StreamContext(stream)
        if pool is not None:
            self.neuron_graph.graph_pool = pool
        if capture_error_mode is not None:
            self.neuron_graph.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        _C.synchronize_device(self.capture_stream.device_index)
        empty_cache()
        self._stream_context.__enter__()
        self.neuron_graph.capture_begin()

    def __exit__(self, *exception: object) -> None:
        try:
            self.neuron_graph.capture_end()
        except torch.AcceleratorError:
            if exception[0] is None:  # else what was raised within left the work of a side stream unjoined
                raise
        finally:
            self._stream_context.__exit__(*exception)
