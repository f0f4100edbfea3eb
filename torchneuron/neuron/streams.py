"""Streams and events of `neuron`: in-order queues of device work, and marks in them."""

from typing import Any

import torch

from .. import _C
from .devices import Device, _get_device_index, clock_rate


def _check_is(kind: type[torch.Stream] | type[torch.Event], value: Any, argument: str) -> None:
    """Raise unless `value` is a torch.Stream or a torch.Event, as `kind` says, of the device.

    torch.Stream's own methods take any object's memory for one of theirs.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{argument} must be torch.neuron.{kind.__name__}, not {type(value).__name__}")
    if value.device.type != "neuron":
        raise ValueError(f"{argument} must be of a neuron device, but is of {value.device}")


class Stream(torch.Stream):
    """An in-order queue of work on one device. As a context manager it is the current stream within.

    Args:
        device: where the stream is; None or a negative index means the current device.
        priority: negative is high, zero and positive are low; see `priority_range`.

    A device has 32 side streams of each priority, which are handed out in turn and live as long as the process.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **existing: int) -> "Stream":
        if existing:
            return super().__new__(cls, **existing)
        if torch.compiler.is_compiling():
            # Dynamo knows this class, and stays in the graph.
            return torch.Stream("neuron" if device is None else device, priority=priority)  # type: ignore[return-value]
        index = _get_device_index(device, optional=True)
        if index < 0:
            index = _C.current_device()
        return super().__new__(cls, torch.device("neuron", index), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Let what is queued here from now on run after `event`."""
        _check_is(torch.Event, event, "wait_event(): argument 'event'")
        super().wait_event(event)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Let what is queued here from now on run after what `stream` was given so far."""
        _check_is(torch.Stream, stream, "wait_stream(): argument 'stream'")
        super().wait_stream(stream)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Move `event`, or a new one, to the end of what was queued here so far, and return it."""
        if event is None:
            return super().record_event()
        _check_is(torch.Event, event, "record_event(): argument 'event'")
        return super().record_event(event)

    @property
    def neuron_stream(self) -> int:
        """The handle that `get_stream_from_external` takes."""
        return self.stream_id

    @property
    def priority(self) -> int:
        return _C.stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority: (0, -1)."""
        return _C.priority_range()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"torch.neuron.Stream(device={self.device}, stream_id={self.stream_id:#x}, priority={self.priority})"


class ExternalStream(Stream):
    """The stream that has the handle `stream_ptr` (its `neuron_stream`), as another library may have passed it on."""

    def __new__(cls, stream_ptr: int, device: Device = None) -> "ExternalStream":
        stream_id, index, device_type = _handle(stream_ptr, device)
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=device_type)  # type: ignore[return-value]


class _EventKind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(torch.Event, metaclass=_EventKind):
    """A mark in a stream that the host and other streams can wait for.

    Args:
        enable_timing: whether `elapsed_time` may be asked.
        blocking: accepted for torch.cuda's sake; `synchronize` never spins for long.
        interprocess: not supported; raises NotImplementedError.

    What is made is a plain `torch.Event("neuron", ...)`, since `torch.Event.elapsed_time` and
    `torch.Stream.record_event` take no subclass; every event of the device is an instance of this class.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        if interprocess:
            raise NotImplementedError(
                "Event(): argument 'interprocess' must be False: streams of two processes know nothing of each other"
            )
        if torch.compiler.is_compiling():
            return torch.Event("neuron", enable_timing=enable_timing)
        return torch.Event("neuron", enable_timing=enable_timing, blocking=blocking)


class StreamContext:
    """Context manager: `stream` and its device are current within. None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        if stream is not None:
            _check_is(torch.Stream, stream, "StreamContext(): argument 'stream'")
        self.stream = stream
        self._previous_device = -1
        self._previous_stream = -1

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous_device = _C.current_device()
            self._previous_stream = _C.current_stream(self.stream.device_index)[0]
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            _C.set_stream(self._previous_stream, self.stream.device_index)
            _C.set_device(self._previous_device)


def stream(stream: torch.Stream | None) -> Any:
    """Context manager that makes `stream` and its device current within; None changes nothing."""
    if torch.compiler.is_compiling() and stream is not None:
        return stream  # Dynamo knows torch.Stream as a context manager, and stays in the graph
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` current on its device, and that device the current one. None changes nothing."""
    if stream is not None:
        _check_is(torch.Stream, stream, "set_stream(): argument 'stream'")
        _C.set_stream(stream.stream_id, stream.device_index)


def current_stream(device: Device = None) -> Any:
    """The calling thread's current `Stream` on `device` (default: the current device)."""
    if torch.compiler.is_compiling():
        # Dynamo knows this function, and stays in the graph.
        return torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)
    return _existing(_C.current_stream(_get_device_index(device, optional=True)))


def default_stream(device: Device = None) -> Stream:
    """The stream of `device` that every thread starts with."""
    return _existing(_C.default_stream(_get_device_index(device, optional=True)))


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """The `Stream` on `device` that has the handle `data_ptr` (its `neuron_stream`)."""
    return _existing(_handle(data_ptr, device))


def _handle(stream_id: int, device: Device) -> tuple[int, int, int]:
    """What a `Stream` is made of; raises ValueError if there is none of this number."""
    index = _get_device_index(device, optional=True)
    _C.stream_priority(stream_id, index)
    return stream_id, index, _C.default_stream(index)[2]


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for so many cycles of the chip's TensorE."""
    _C.sleep(round(cycles * 1000 / clock_rate()))


def _existing(triple: tuple[int, int, int]) -> Stream:
    return Stream(stream_id=triple[0], device_index=triple[1], device_type=triple[2])
