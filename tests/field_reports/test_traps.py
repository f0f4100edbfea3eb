"""Traps that follow from the pre-public source of AWS's TorchNeuron, section S: ours to avoid.

Left to torch.distributed: S-09, S-11. Left to torch.compile: the part of S-06 inside a compiled region.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICE = "neuron"


def test_S_01_empty_strided_allocates_what_its_strides_reach() -> None:
    assert torch.empty_strided((2, 2), (10, 1), device=DEVICE).untyped_storage().nbytes() == 48
    assert torch.empty_strided((0, 2), (10, 1), device=DEVICE).untyped_storage().nbytes() == 0
    assert torch.empty_strided((5,), (0,), dtype=torch.float64, device=DEVICE).untyped_storage().nbytes() == 8
    spread = torch.empty_strided((2, 2), (10, 1), device=DEVICE).fill_(1)
    assert spread.tolist() == [[1, 1], [1, 1]]


def test_S_02_resize_keeps_the_storage_offset() -> None:
    base = torch.zeros(4, device=DEVICE)
    base[2:] = torch.tensor([5.0, 6.0])
    view = base[2:]
    view.resize_(6)
    assert view.shape == (6,) and view.storage_offset() == 2
    assert view.untyped_storage().nbytes() == 8 * 4
    assert view[:2].tolist() == [5, 6]
    assert base.tolist() == [0, 0, 5, 6]


def test_S_02_resize_of_a_tensor_that_queued_work_still_writes() -> None:
    x = torch.zeros(1000, 1000, device=DEVICE)
    for _ in range(20):
        x = x + 1
    x.resize_(2000, 1000)
    assert x[:1000].sum().item() == 20 * 1000 * 1000
    x.resize_(3)
    assert x.tolist() == [20, 20, 20]


def test_S_04_allocating_on_another_index_keeps_the_current_device() -> None:
    torch.neuron.set_device(0)
    x = torch.empty(1, device="neuron:1")
    assert x.device == torch.device("neuron:1")
    assert torch.neuron.current_device() == 0
    x.fill_(2).mul_(3)
    assert torch.neuron.current_device() == 0
    assert torch.empty(1, device=DEVICE).device == torch.device("neuron:0")
    with torch.neuron.device(1):
        torch.empty(1, device="neuron:0")
        assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_S_06_set_adds_the_offset_of_its_source(on_both: Callable) -> None:
    def run(device: str) -> list[int]:
        x = torch.arange(8, device=device)
        y = torch.empty(0, dtype=torch.int64, device=device)
        y.set_(x[2:], 1, (1,), (1,))
        z = torch.empty(0, dtype=torch.int64, device=device).set_(x[2:])
        s = torch.empty(0, dtype=torch.int64, device=device).set_(x.untyped_storage(), 2, (2, 2), (2, 1))
        empty = torch.ones(3, dtype=torch.int64, device=device).set_()
        return [*y.tolist(), *z.tolist(), *s.flatten().tolist(), empty.numel()]

    on_both(run)
    x = torch.arange(8, device=DEVICE)
    y = torch.empty(0, dtype=torch.int64, device=DEVICE).set_(x[2:], 1, (1,), (1,))
    assert y.data_ptr() == x[3:].data_ptr() and y.tolist() == [3]


def test_S_06_set_on_fake_tensors() -> None:
    with FakeTensorMode():
        x = torch.arange(8.0, device=DEVICE)
        y = torch.empty(0, device=DEVICE)
        y.set_(x[2:], 1, (1,), (1,))
        assert y.device.type == DEVICE and y.shape == (1,)


def test_S_07_only_pinned_memory_counts_as_pinned() -> None:
    plain = torch.ones(3)
    assert not plain.is_pinned()
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned.device.type == "cpu" and pinned.data_ptr() != plain.data_ptr()
    assert pinned[1:].is_pinned()
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()


def test_S_07_pageable_source_may_change_after_the_copy_returns() -> None:
    x = torch.ones(1 << 20)
    y = x.to(DEVICE, non_blocking=True)
    x.zero_()
    assert y.sum().item() == 1 << 20


def test_S_12_overloads_of_one_arity_are_not_mistaken(on_both: Callable) -> None:
    def run(device: str) -> list[torch.Tensor]:
        x = torch.tensor([1.0, 2.0, 3.0], device=device)
        two, index = torch.tensor(2.0, device=device), torch.tensor([0, 2], device=device)
        return [
            torch.pow(x, 2),
            torch.pow(2, x),
            torch.pow(x, x),
            x.clone().pow_(2),
            x.clone().pow_(x),
            x.clone().fill_(4),
            x.clone().fill_(two),
            x.clone().index_fill_(0, index, 7),
            x.clone().index_fill_(0, index, two),
            torch.clamp(x, 1.5, 2.5),
            torch.clamp(x, two, x + 1),
            x.clone().clamp_(1.5),
            x.clone().clamp_(max=two),
            torch.where(x > 1, x, 0.0),
            torch.where(x > 1, 0.0, x),
            torch.remainder(x, 2),
            torch.remainder(7, x),
            torch.bitwise_left_shift(1, index),
            torch.full_like(x, 3).masked_fill_(x > 1, two),
        ]

    on_both(run)


def test_S_12_normal_by_numbers_and_by_tensors() -> None:
    torch.manual_seed(0)
    means = torch.tensor([-50.0, 0.0, 50.0], device=DEVICE).repeat(1000, 1)
    deviations = torch.tensor([0.1, 1.0, 0.0], device=DEVICE).repeat(1000, 1)
    assert torch.allclose(torch.normal(means, 1.0).mean(0).cpu(), torch.tensor([-50.0, 0.0, 50.0]), atol=0.2)
    assert torch.allclose(torch.normal(0.0, deviations).std(0).cpu(), torch.tensor([0.1, 1.0, 0.0]), atol=0.1)
    both = torch.normal(means, deviations)
    assert both[:, 2].eq(50).all().item() and abs(both[:, 0].mean().item() + 50) < 0.05
    assert abs(torch.normal(3.0, 0.5, (4000,), device=DEVICE).mean().item() - 3) < 0.05
    assert abs(torch.empty(4000, device=DEVICE).normal_(-2, 0.5).mean().item() + 2) < 0.05


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_S_14_profiler_works_with_blocking_launch(blocking: str, run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        x = torch.ones(8, 8, device="neuron")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            with torch.profiler.record_function("step"):
                y = (x @ x).sum()
        assert y.item() == 512
        names = {event.key for event in profile.key_averages()}
        assert {"aten::mm", "aten::sum", "step"} <= names, names
        """,
        NEURON_LAUNCH_BLOCKING=blocking,
    )
    assert result.returncode == 0, result.stderr
