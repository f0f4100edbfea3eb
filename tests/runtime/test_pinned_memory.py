"""Pinned host memory, and what may be changed when after a copy between host and device was asked for."""

from __future__ import annotations

import threading

import torch
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "neuron"


def matmul_chain(length: int = 40) -> None:
    x = torch.eye(1024, device=DEVICE)
    for _ in range(length):
        x = x @ x


def test_is_pinned() -> None:
    assert not torch.ones(3).is_pinned()
    assert not torch.ones(3, device=DEVICE).is_pinned()
    pinned = torch.ones(3).pin_memory()
    assert pinned.is_pinned() and pinned.tolist() == [1, 1, 1]
    assert pinned.untyped_storage().is_pinned()
    assert torch.zeros(4, pin_memory=True).is_pinned()
    assert torch.empty_like(pinned, pin_memory=True).is_pinned()
    assert not pinned.clone().is_pinned()
    assert pinned[1:].is_pinned() and pinned.view(3, 1).t().is_pinned()


def test_pinned_copies_are_asynchronous_and_in_order() -> None:
    pinned = torch.full((1 << 18,), 5.0).pin_memory()
    target = torch.zeros(1 << 18, device=DEVICE)
    torch.neuron.synchronize()
    matmul_chain()
    target.copy_(pinned, non_blocking=True)
    assert not torch.neuron.current_stream().query(), "the copy waited for the stream"
    assert (target * 2).sum().item() == 10 * (1 << 18)


def test_pinned_source_is_read_when_the_stream_gets_there() -> None:
    pinned = torch.full((16,), 5.0).pin_memory()
    target = torch.zeros(16, device=DEVICE)
    torch.neuron.synchronize()
    matmul_chain()
    target.copy_(pinned, non_blocking=True)
    pinned.fill_(6)
    assert not torch.neuron.current_stream().query()
    assert target.tolist() == [6.0] * 16


def test_freed_pinned_memory_is_not_reused_while_a_copy_reads_it() -> None:
    target = torch.zeros(1 << 18, device=DEVICE)
    torch.neuron.synchronize()
    matmul_chain()
    pinned = torch.full((1 << 18,), 5.0).pin_memory()
    target.copy_(pinned, non_blocking=True)
    del pinned
    others = [torch.full((1 << 18,), 9.0).pin_memory() for _ in range(4)]
    assert not torch.neuron.current_stream().query()
    assert target.sum().item() == 5 * (1 << 18)
    del others


def test_pageable_source_may_be_changed_after_the_copy_returns() -> None:
    for size in (1, 16, 1 << 20):
        for non_blocking in (False, True):
            source = torch.full((size,), 5.0)
            matmul_chain(3)
            on_device = source.to(DEVICE, non_blocking=non_blocking)
            source.fill_(9)
            assert on_device.sum().item() == 5 * size
            target = torch.zeros(size, device=DEVICE)
            matmul_chain(3)
            target.copy_(source, non_blocking=non_blocking)
            source.fill_(1)
            assert target.sum().item() == 9 * size


def test_reading_back_waits_unless_told_not_to() -> None:
    x = torch.zeros(1 << 10, device=DEVICE)
    torch.neuron.synchronize()
    matmul_chain()
    x.fill_(4)
    assert x.cpu().sum().item() == 4 << 10
    matmul_chain()
    x.fill_(6)
    pinned = torch.zeros(1 << 10, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    assert not torch.neuron.current_stream().query()
    torch.neuron.synchronize()
    assert pinned.sum().item() == 6 << 10
    pageable = torch.zeros(1 << 10)
    matmul_chain()
    x.fill_(8)
    pageable.copy_(x)
    assert pageable.sum().item() == 8 << 10


def test_a_strided_or_narrower_target_on_the_host() -> None:
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    host = torch.zeros(4, 6, dtype=torch.float64)
    host.t()[:6:2].copy_(x)
    assert host.t()[::2].tolist() == x.tolist() and host.t()[1::2].abs().sum() == 0


def test_pinned_memory_is_pooled() -> None:
    torch.accelerator.empty_host_cache()
    first = torch.empty(1 << 20, pin_memory=True)
    address = first.data_ptr()
    del first
    assert torch.empty(1 << 20, pin_memory=True).data_ptr() == address
    torch.accelerator.empty_host_cache()
    assert not torch.ones(1).is_pinned()


def test_data_loader_pins_in_its_own_thread() -> None:
    data = TensorDataset(torch.arange(64.0).view(32, 2), torch.arange(32))
    total = 0.0
    for workers in (0, 2):
        for x, y in DataLoader(data, batch_size=8, num_workers=workers, pin_memory=True):
            assert x.is_pinned() and y.is_pinned()
            total += x.to(DEVICE, non_blocking=True).sum().item()
    assert total == 2 * 2016


def test_pinning_from_many_threads() -> None:
    failures: list[str] = []

    def work(i: int) -> None:
        for j in range(50):
            pinned = torch.full((100 * (i + 1),), float(j), pin_memory=True)
            if pinned.to(DEVICE, non_blocking=True).sum().item() != 100 * (i + 1) * j:
                failures.append(f"thread {i}, round {j}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
