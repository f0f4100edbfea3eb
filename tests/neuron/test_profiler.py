"""PyTorch's profilers on `neuron`."""

from __future__ import annotations

import time

import pytest
import torch


def test_autograd_profiler_measures_operators(capfd: pytest.CaptureFixture[str]) -> None:
    x, small = torch.eye(768, device="neuron"), torch.ones(4, device="neuron")
    torch.neuron.synchronize()
    start = time.perf_counter()
    with torch.autograd.profiler.profile(use_device="neuron") as profile:
        for _ in range(5):
            x = x @ x
            small = small + 1
        assert small.tolist() == [6, 6, 6, 6]
    wall = (time.perf_counter() - start) * 1e6
    events = {event.key: event for event in profile.key_averages()}
    assert events["aten::mm"].count == events["aten::add"].count == 5
    assert 0 < events["aten::add"].device_time_total < events["aten::mm"].device_time_total < wall
    assert "NEURON" in profile.key_averages().table()
    assert "Exception" not in capfd.readouterr().err


def test_autograd_profiler_during_a_capture() -> None:
    x = torch.zeros(4, device="neuron")
    graph = torch.neuron.NeuronGraph()
    with torch.autograd.profiler.profile(use_device="neuron") as profile, torch.neuron.graph(graph):
        x.add_(1)
    assert [event.device_time_total for event in profile.key_averages() if event.key == "aten::add_"] == [0]
    graph.replay()
    assert x.tolist() == [1, 1, 1, 1]
