"""Streams: in-order queues, each with a worker of its own, that wait for each other only where told to."""

from __future__ import annotations

import threading

import pytest
import torch

DEVICE = "neuron"


def matmul_chain(length: int = 40, size: int = 1024) -> torch.Tensor:
    """Queues matrix products for some tenths of a second on the current stream."""
    x = torch.eye(size, device=DEVICE)
    for _ in range(length):
        x = x @ x
    return x


def test_a_stream_runs_in_order() -> None:
    x = torch.zeros(1000, device=DEVICE)
    expected = 0.0
    for step in range(200):
        x.mul_(0.5).add_(step)
        expected = expected * 0.5 + step
    assert x[0].item() == pytest.approx(expected, rel=1e-6)
    y = torch.arange(1000.0, device=DEVICE)
    z = y.clone()
    y.zero_()
    assert z.sum().item() == 499500


def test_side_stream_overlaps_the_default_stream() -> None:
    side = torch.neuron.Stream()
    before = torch.zeros(4, device=DEVICE)
    torch.neuron.synchronize()
    matmul_chain()
    before.fill_(7)
    with torch.neuron.stream(side):
        seen = before + 1
    side.synchronize()
    assert not torch.neuron.default_stream().query(), "the side stream waited for the default stream"
    torch.neuron.synchronize()
    assert torch.neuron.default_stream().query()
    assert seen.tolist() == [1, 1, 1, 1]


def test_wait_stream_orders_two_streams() -> None:
    side = torch.neuron.Stream()
    x = torch.zeros(4, device=DEVICE)
    matmul_chain()
    x.fill_(7)
    side.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(side):
        y = x + 1
    x_again = torch.zeros(4, device=DEVICE)
    torch.neuron.current_stream().wait_stream(side)
    x_again.copy_(y)
    assert x_again.tolist() == [8, 8, 8, 8]


def test_wait_event_waits_only_for_what_came_before_the_event() -> None:
    side = torch.neuron.Stream()
    x = torch.zeros(4, device=DEVICE)
    matmul_chain(10)
    x.fill_(7)
    event = torch.neuron.current_stream().record_event()
    matmul_chain()
    x.fill_(100)
    side.wait_event(event)
    with torch.neuron.stream(side):
        y = x + 1
    side.synchronize()
    assert not torch.neuron.current_stream().query()
    torch.neuron.synchronize()
    assert y.tolist() == [8, 8, 8, 8]


def test_chains_of_waits_over_many_streams() -> None:
    streams = [torch.neuron.Stream() for _ in range(6)]
    x = torch.zeros(1 << 16, device=DEVICE)
    previous = torch.neuron.current_stream()
    for _ in range(20):
        for stream in streams:
            stream.wait_stream(previous)
            with torch.neuron.stream(stream):
                x.mul_(2).add_(1).remainder_(1009)
            previous = stream
    torch.neuron.current_stream().wait_stream(previous)
    expected = 0
    for _ in range(20 * 6):
        expected = (expected * 2 + 1) % 1009
    assert x.eq(expected).all().item()


def test_host_synchronize_of_one_stream_leaves_the_other_running() -> None:
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        matmul_chain()
    x = torch.ones(3, device=DEVICE) + 1
    assert x.tolist() == [2, 2, 2]
    assert not side.query()
    torch.neuron.synchronize()
    assert side.query()


def test_current_stream_is_a_matter_of_the_thread() -> None:
    default = torch.neuron.default_stream()
    side = torch.neuron.Stream()
    assert torch.neuron.current_stream() == default
    seen = []
    with torch.neuron.stream(side):
        assert torch.neuron.current_stream() == side != default
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream() == default))
        thread.start()
        thread.join()
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == side
    assert seen == [True]
    assert torch.neuron.current_stream() == default
    torch.neuron.set_stream(side)
    assert torch.neuron.current_stream() == side == torch.accelerator.current_stream()
    torch.neuron.set_stream(default)


def test_stream_context_restores_after_an_exception() -> None:
    side = torch.neuron.Stream()
    with pytest.raises(ValueError, match="inside"), torch.neuron.stream(side):
        raise ValueError("inside")
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_priorities() -> None:
    urgent, usual = torch.neuron.Stream(priority=-1), torch.neuron.Stream(priority=0)
    assert (urgent.priority, usual.priority) == (-1, 0)
    assert urgent != usual
    with torch.neuron.stream(urgent):
        x = torch.ones(2, device=DEVICE) * 3
    with torch.neuron.stream(usual):
        y = torch.ones(2, device=DEVICE) * 4
    torch.neuron.synchronize()
    assert x.tolist() == [3, 3] and y.tolist() == [4, 4]


def test_streams_of_other_devices() -> None:
    stream = torch.neuron.Stream(device="neuron:1")
    assert stream.device == torch.device("neuron:1")
    assert torch.neuron.current_device() == 0
    with torch.neuron.stream(stream):
        assert torch.neuron.current_device() == 1
        assert torch.neuron.current_stream() == torch.neuron.current_stream("neuron:1") == stream
        x = torch.ones(2, device=DEVICE)
        assert x.device == torch.device("neuron:1")
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream("neuron:1") == torch.neuron.default_stream("neuron:1")
    assert torch.neuron.default_stream(1).device == torch.device("neuron:1")


def test_waits_across_devices() -> None:
    x = torch.zeros(4, device="neuron:0")
    matmul_chain()
    x.fill_(3)
    other = torch.neuron.Stream(device=1)
    other.wait_stream(torch.neuron.current_stream(0))
    with torch.neuron.stream(other):
        y = x.to("neuron:1") * 2
    other.synchronize()
    assert y.device == torch.device("neuron:1") and y.tolist() == [6, 6, 6, 6]


def test_streams_compare_hash_and_describe_themselves() -> None:
    streams = [torch.neuron.Stream() for _ in range(3)]
    assert len(set(streams)) == 3
    again = torch.neuron.Stream(
        stream_id=streams[0].stream_id, device_index=streams[0].device_index, device_type=streams[0].device_type
    )
    assert again == streams[0] and hash(again) == hash(streams[0])
    assert "neuron" in repr(streams[0]).lower()
    assert isinstance(streams[0], torch.Stream)


def test_many_streams_are_handed_out_in_turn() -> None:
    streams = [torch.neuron.Stream() for _ in range(100)]
    total = torch.zeros(100, device=DEVICE)
    torch.neuron.synchronize()
    for i, stream in enumerate(streams):
        with torch.neuron.stream(stream):
            total[i].fill_(i)
    torch.neuron.synchronize()
    assert total.tolist() == list(range(100))
