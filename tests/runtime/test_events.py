"""Events: marks in streams that can be waited for, asked for, and timed."""

from __future__ import annotations

import time

import pytest
import torch

DEVICE = "neuron"


def matmul_chain(length: int = 40, size: int = 1024) -> None:
    x = torch.eye(size, device=DEVICE)
    for _ in range(length):
        x = x @ x


def test_query_and_synchronize() -> None:
    event = torch.neuron.Event()
    assert event.query(), "an event that was never recorded has nothing to wait for"
    matmul_chain()
    event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()
    matmul_chain()
    assert event.query(), "work after the event does not matter to it"
    event.record()
    assert not event.query(), "recording again moves the event"
    torch.neuron.synchronize()
    assert event.query()


def test_elapsed_time_is_the_time_of_the_work() -> None:
    start, middle, end = (torch.neuron.Event(enable_timing=True) for _ in range(3))
    torch.neuron.synchronize()
    clock = time.perf_counter()
    start.record()
    matmul_chain(10)
    middle.record()
    matmul_chain(20)
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - clock) * 1e3
    first, second, both = start.elapsed_time(middle), middle.elapsed_time(end), start.elapsed_time(end)
    assert 0 < first < both and 0 < second < both <= wall
    assert first + second == pytest.approx(both, abs=1.0)
    assert both > 0.3 * wall
    assert start.elapsed_time(start) == 0
    assert end.elapsed_time(start) == pytest.approx(-both, abs=1e-3)


def test_elapsed_time_needs_timing() -> None:
    timed, plain = torch.neuron.Event(enable_timing=True), torch.neuron.Event()
    timed.record()
    plain.record()
    torch.neuron.synchronize()
    for pair in ((timed, plain), (plain, timed), (plain, plain)):
        with pytest.raises((RuntimeError, ValueError), match="(?i)timing"):
            pair[0].elapsed_time(pair[1])


def test_elapsed_time_needs_recorded_events() -> None:
    recorded, never = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    recorded.record()
    recorded.synchronize()
    for pair in ((recorded, never), (never, recorded)):
        with pytest.raises((RuntimeError, ValueError), match="(?i)record"):
            pair[0].elapsed_time(pair[1])


def test_events_across_streams() -> None:
    side = torch.neuron.Stream()
    x = torch.zeros(4, device=DEVICE)
    matmul_chain()
    x.fill_(4)
    event = torch.neuron.Event()
    event.record(torch.neuron.current_stream())
    event.wait(side)
    with torch.neuron.stream(side):
        y = x * 2
        done = torch.neuron.current_stream().record_event()
    done.synchronize()
    assert event.query() and side.query()
    assert y.tolist() == [8, 8, 8, 8]


def test_an_event_stays_on_its_device() -> None:
    event = torch.neuron.Event()
    event.record(torch.neuron.current_stream(0))
    with pytest.raises(RuntimeError, match="Event device neuron:0 does not match recording stream's device neuron:1"):
        event.record(torch.neuron.current_stream(1))
    event.record(torch.neuron.Stream(0))
    event.wait(torch.neuron.current_stream(1))
    event.synchronize()


def test_record_event_of_a_stream_takes_an_event() -> None:
    event = torch.neuron.Event(enable_timing=True)
    assert torch.neuron.current_stream().record_event(event) is event
    event.synchronize()
    assert event.query()


def test_an_event_outlives_its_python_object() -> None:
    side = torch.neuron.Stream()
    x = torch.zeros(2, device=DEVICE)
    matmul_chain()
    x.fill_(1)
    side.wait_event(torch.neuron.current_stream().record_event())
    with torch.neuron.stream(side):
        y = x + 1
    side.synchronize()
    assert y.tolist() == [2, 2]


def test_blocking_and_generic_events() -> None:
    blocking = torch.neuron.Event(blocking=True)
    blocking.record()
    blocking.synchronize()
    generic = torch.Event("neuron", enable_timing=True)
    generic.record(torch.neuron.current_stream())
    generic.synchronize()
    later = torch.Event("neuron", enable_timing=True)
    later.record()
    later.synchronize()
    assert generic.elapsed_time(later) >= 0
    assert isinstance(blocking, torch.Event)


def test_many_events() -> None:
    events = []
    x = torch.zeros(1, device=DEVICE)
    for _ in range(2000):
        x.add_(1)
        event = torch.neuron.Event(enable_timing=True)
        event.record()
        events.append(event)
    torch.neuron.synchronize()
    assert all(event.query() for event in events)
    assert all(a.elapsed_time(b) >= 0 for a, b in zip(events, events[1:]))
