"""Stream and Event objects of `torch.neuron`: their kinds, their contexts, and what Dynamo makes of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def default_streams() -> Iterator[None]:
    yield
    torch.neuron.set_device(0)
    for index in range(2):
        torch.neuron.set_stream(torch.neuron.default_stream(index))
    torch.neuron.set_device(0)


def test_kinds() -> None:
    stream, event = torch.neuron.Stream(), torch.neuron.Event()
    assert isinstance(stream, torch.Stream) and isinstance(event, torch.Event)
    for found in (torch.neuron.current_stream(), torch.neuron.default_stream(), stream.record_event()):
        assert isinstance(found, torch.neuron.Stream | torch.neuron.Event)
    assert stream.record_event(event) is event
    assert event.device.type == "neuron" and issubclass(torch.neuron.Event, torch.Event)
    assert isinstance(torch.Event("neuron"), torch.neuron.Event) and not isinstance(stream, torch.neuron.Event)


def test_events_of_both_kinds_are_timed_together() -> None:
    ours, generic = torch.neuron.Event(enable_timing=True), torch.Event("neuron", enable_timing=True)
    ours.record()
    torch.ones(64, 64, device="neuron").matmul(torch.ones(64, 64, device="neuron"))
    assert torch.Stream("neuron").record_event(torch.neuron.Event()).device.type == "neuron"
    generic.record()
    generic.synchronize()
    assert 0 < ours.elapsed_time(generic) < 10_000
    assert generic.elapsed_time(ours) == pytest.approx(-ours.elapsed_time(generic))


def test_equality() -> None:
    stream = torch.neuron.Stream()
    with torch.neuron.stream(stream):
        current = torch.neuron.current_stream()
        generic = torch.accelerator.current_stream()
    assert stream == current == generic and hash(stream) == hash(current)
    assert stream != torch.neuron.default_stream() and stream != "a stream" and stream is not None
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    assert stream in {current} and copy.copy(stream.device) == torch.device("neuron:0")


def test_where_a_stream_is() -> None:
    assert torch.neuron.Stream().device == torch.device("neuron:0")
    for device in (1, "neuron:1", torch.device("neuron:1")):
        assert torch.neuron.Stream(device).device == torch.device("neuron:1")
        assert torch.neuron.Stream(device=device, priority=-1).device == torch.device("neuron:1")
        assert torch.neuron.current_stream(device).device == torch.device("neuron:1")
        assert torch.neuron.default_stream(device).device == torch.device("neuron:1")
    assert torch.neuron.Stream(-1).device == torch.device("neuron:0")
    with torch.neuron.device(1):
        assert torch.neuron.Stream().device == torch.device("neuron:1")
    with pytest.raises(ValueError, match="neuron"):
        torch.neuron.Stream("cpu")
    with pytest.raises(ValueError, match="neuron"):
        torch.neuron.set_stream(torch.Stream("cpu"))


def test_priorities() -> None:
    least, greatest = torch.neuron.Stream.priority_range()
    assert (least, greatest) == (0, -1)
    assert torch.neuron.Stream().priority == 0 and torch.neuron.Stream(priority=5).priority == 0
    assert torch.neuron.Stream(priority=-1).priority == -1 and torch.neuron.Stream(priority=-7).priority == -1


def test_contexts_restore_stream_and_device() -> None:
    outer, inner = torch.neuron.Stream(), torch.neuron.Stream(1)
    for enter in (torch.neuron.stream, torch.neuron.StreamContext, lambda stream: stream):
        with enter(outer):
            assert torch.neuron.current_stream() == outer
            with enter(inner):
                assert torch.neuron.current_device() == 1
                assert torch.neuron.current_stream() == inner and torch.neuron.current_stream(0) == outer
            assert torch.neuron.current_device() == 0 and torch.neuron.current_stream() == outer
            assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)
        assert torch.neuron.current_stream() == torch.neuron.default_stream()
    with pytest.raises(KeyError), torch.neuron.stream(inner):
        raise KeyError
    assert torch.neuron.current_device() == 0
    with torch.neuron.stream(None):
        assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_setting_a_stream() -> None:
    stream = torch.neuron.Stream(1)
    torch.neuron.set_stream(stream)
    assert torch.neuron.current_device() == 1 and torch.neuron.current_stream() == stream
    torch.neuron.set_stream(None)
    assert torch.neuron.current_stream() == stream
    torch.accelerator.set_stream(torch.neuron.default_stream(1))
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)


def test_handles() -> None:
    stream = torch.neuron.Stream()
    assert torch.neuron.get_stream_from_external(stream.neuron_stream) == stream
    assert torch.neuron.get_stream_from_external(stream.neuron_stream, "neuron:0") == stream
    external = torch.neuron.ExternalStream(stream.neuron_stream, "neuron:0")
    assert isinstance(external, torch.neuron.Stream) and external == stream
    x = torch.ones(2, device="neuron")
    external.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(external):
        assert torch.neuron.current_stream() == stream and (x + 1).tolist() == [2, 2]
    for function in (torch.neuron.get_stream_from_external, torch.neuron.ExternalStream):
        with pytest.raises(ValueError, match="no stream"):
            function(12345)


def test_sleep_keeps_one_stream_busy() -> None:
    side = torch.neuron.Stream()
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    with torch.neuron.stream(side):
        start.record()
        torch.neuron._sleep(torch.neuron.clock_rate() * 100_000)  # 0.1 seconds at that many MHz
        end.record()
    assert not side.query() and (torch.ones(2, device="neuron") + 1).tolist() == [2, 2]
    end.synchronize()
    assert 100 <= start.elapsed_time(end) < 1000


def test_texts() -> None:
    stream = torch.neuron.Stream(1, priority=-1)
    assert repr(stream).startswith("torch.neuron.Stream(device=neuron:1, stream_id=0x")
    assert "device_type=neuron" in repr(torch.neuron.Event())


def test_waiting_between_kinds() -> None:
    ours, generic = torch.neuron.Stream(), torch.Stream("neuron")
    x = torch.zeros(1 << 16, device="neuron")
    ours.wait_stream(torch.neuron.current_stream())
    with ours:
        x += 1
    generic.wait_stream(ours)
    with generic:
        x *= 3
        mark = torch.Event("neuron")
        mark.record()
    ours.wait_event(mark)
    with torch.neuron.stream(ours):
        x += 1
        done = ours.record_event()
    done.wait(torch.neuron.current_stream())
    assert x.eq(4).all().item()
    assert ours.query() and generic.query() and done.query()


WRONG = {
    "wait_event(): argument 'event' must be torch.neuron.Event": lambda stream, x: stream.wait_event(x),
    "wait_stream(): argument 'stream' must be torch.neuron.Stream": lambda stream, x: stream.wait_stream(x),
    "record_event(): argument 'event' must be torch.neuron.Event": lambda stream, x: stream.record_event(x),
    "set_stream(): argument 'stream' must be torch.neuron.Stream": lambda stream, x: torch.neuron.set_stream(x),
    "StreamContext(): argument 'stream' must be torch.neuron.Stream": lambda stream, x: torch.neuron.stream(x),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_stream_or_event_is_named(text: str) -> None:
    stream = torch.neuron.current_stream()
    for value, kind in ((3, "int"), ("x", "str"), (torch.ones(1), "Tensor")):
        with pytest.raises(TypeError, match=re.escape(f"{text}, not {kind}")):
            WRONG[text](stream, value)
    other = torch.Event("cpu") if text.endswith("Event") else torch.Stream("cpu")
    with pytest.raises(ValueError, match="must be of a neuron device, but is of cpu"):
        WRONG[text](stream, other)
    for nothing in (stream.wait_event, stream.wait_stream):
        with pytest.raises(TypeError, match="not NoneType"):
            nothing(None)


def test_events_stay_in_their_process() -> None:
    with pytest.raises(NotImplementedError, match="argument 'interprocess' must be False"):
        torch.neuron.Event(interprocess=True)


def test_stream_in_compiled_code() -> None:
    side = torch.neuron.Stream()

    @torch.compile(backend="eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        current = torch.neuron.current_stream()
        side.wait_stream(current)
        with torch.neuron.stream(side):
            y = x * 2
        current.wait_stream(side)
        return y + 1

    x = torch.arange(4.0, device="neuron")
    assert function(x).tolist() == [1, 3, 5, 7]
    with torch.neuron.stream(torch.neuron.Stream()):
        assert function(x).tolist() == [1, 3, 5, 7]


def test_what_is_made_in_compiled_code() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        event, side = torch.neuron.Event(), torch.neuron.Stream()
        side.wait_stream(torch.neuron.current_stream())
        with side:
            y = x * 2
        torch.neuron.current_stream().wait_stream(side)
        event.record()
        event.wait()
        torch.neuron.synchronize()
        return y + 1

    assert function(torch.arange(3.0, device="neuron")).tolist() == [1, 3, 5]


def test_asking_the_device_in_compiled_code() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        if torch.neuron.is_available() and torch.neuron.get_device_properties(0).name == "trn2":
            x = x + torch.neuron.current_device() + torch.neuron.device_count()
        return x + torch.neuron.get_device_capability()[0]

    x = torch.ones(1, device="neuron")
    assert function(x).tolist() == [8]
    with torch.neuron.device(1):
        assert function(x).tolist() == [9]
