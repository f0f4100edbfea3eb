"""Many Python threads at once: operators, streams, frees, events and copies; the values tell of races.

TORCHNEURON_STRESS_SECONDS sets how long it lasts (10 by default; 60 for the full run).
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time

import torch

DEVICE = "neuron"
SECONDS = float(os.environ.get("TORCHNEURON_STRESS_SECONDS", "10"))


class Worker:
    """Does random things with tensors each of which holds one known value everywhere."""

    def __init__(self, seed: int, shared_streams: list[torch.neuron.Stream]) -> None:
        self.random = random.Random(seed)
        self.device = seed % 2
        self.streams = [torch.neuron.Stream(device=self.device) for _ in range(2)]
        self.streams += [s for s in shared_streams if s.device.index == self.device]
        self.live: list[tuple[torch.Tensor, float, torch.neuron.Stream]] = []
        self.things = [self.make, self.make, self.combine, self.combine, self.in_place, self.free, self.check]
        self.things += [self.copy, self.timed, self.backward, self.visit_host]
        self.steps = 0
        self.failure: str | None = None

    def run(self, deadline: float) -> None:
        try:
            torch.neuron.set_device(self.device)
            while time.monotonic() < deadline and self.failure is None:
                with torch.neuron.stream(self.random.choice(self.streams)):
                    self.random.choice(self.things)()
                self.steps += 1
            for tensor, value, _ in self.live:
                self.expect(tensor, value)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self.live.clear()

    def keep(self, tensor: torch.Tensor, value: float) -> None:
        self.live.append((tensor, value, torch.neuron.current_stream()))
        if len(self.live) > 20:
            self.free()

    def expect(self, tensor: torch.Tensor, value: float) -> None:
        low, high = tensor.amin().item(), tensor.amax().item()
        if low != value or high != value:
            self.failure = f"expected {value}, found {low} to {high} after {self.steps} steps"

    def pick(self) -> tuple[torch.Tensor, float] | None:
        """A live tensor whose stream the current stream has been told to wait for."""
        if not self.live:
            return None
        tensor, value, stream = self.random.choice(self.live)
        current = torch.neuron.current_stream()
        if stream != current:
            if self.random.random() < 0.5:
                current.wait_stream(stream)
            else:
                current.wait_event(stream.record_event())
            tensor.record_stream(current)
        return tensor, value

    def make(self) -> None:
        size = self.random.choice([1, 100, 1000, 30_000, 300_000])
        value = float(self.random.randrange(100))
        self.keep(torch.full((size,), value, device=DEVICE), value)

    def combine(self) -> None:
        picked = self.pick()
        if picked is not None:
            tensor, value = picked
            number = self.random.randrange(5)
            self.keep((tensor * 2 + number).remainder(1009), (value * 2 + number) % 1009)

    def in_place(self) -> None:
        picked = self.pick()
        if picked is not None:
            tensor, value = picked
            copy = tensor.clone()
            copy.add_(1).sub_(3)
            copy[: copy.numel() // 2].mul_(1)
            self.keep(copy, value - 2)

    def free(self) -> None:
        if self.live:
            self.live.pop(self.random.randrange(len(self.live)))

    def check(self) -> None:
        picked = self.pick()
        if picked is not None:
            self.expect(*picked)

    def copy(self) -> None:
        picked = self.pick()
        if picked is not None:
            tensor, value = picked
            there = tensor.to(f"neuron:{1 - self.device}", non_blocking=True)
            back = there.to(tensor.device, non_blocking=True)
            self.keep(back, value)

    def timed(self) -> None:
        start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
        start.record()
        x = torch.ones(64, 64, device=DEVICE) @ torch.ones(64, 64, device=DEVICE)
        end.record()
        end.synchronize()
        if start.elapsed_time(end) < 0:
            self.failure = "time ran backwards"
        self.keep(x, 64.0)

    def backward(self) -> None:
        x = torch.full((50,), 3.0, device=DEVICE, requires_grad=True)
        (x * x).sum().backward()
        self.expect(x.grad, 6.0)

    def visit_host(self) -> None:
        picked = self.pick()
        if picked is not None:
            tensor, value = picked
            host = tensor.to("cpu")
            pinned = host.pin_memory()
            self.keep(pinned.to(DEVICE, non_blocking=True), value)


def test_eight_threads_do_random_things() -> None:
    gc.collect()
    torch.neuron.synchronize()
    before = [torch.neuron.memory_allocated(i) for i in range(2)]
    shared = [torch.neuron.Stream(device=i % 2) for i in range(4)]
    workers = [Worker(seed, shared) for seed in range(8)]
    deadline = time.monotonic() + SECONDS
    threads = [threading.Thread(target=worker.run, args=(deadline,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 120)
    assert not any(thread.is_alive() for thread in threads)
    assert [worker.failure for worker in workers] == [None] * 8
    assert min(worker.steps for worker in workers) > 20
    gc.collect()
    for i in range(2):
        torch.neuron.synchronize(i)
        assert torch.neuron.memory_allocated(i) == before[i]
        torch.neuron.empty_cache()
        stats = torch.neuron.memory_stats(i)
        assert stats["active_bytes.all.current"] == stats["allocated_bytes.all.current"]


def test_threads_share_one_stream() -> None:
    total = torch.zeros(1000, dtype=torch.int64, device=DEVICE)

    def work() -> None:
        for _ in range(500):
            total.add_(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.eq(4000).all().item()


def test_tensors_are_freed_by_other_threads() -> None:
    base = torch.neuron.memory_allocated()
    handed: list[torch.Tensor] = []

    def produce() -> None:
        for i in range(300):
            handed.append(torch.full((1000,), float(i), device=DEVICE))

    def consume() -> None:
        for _ in range(300):
            while not handed:
                time.sleep(0)
            handed.pop(0).sum()

    threads = [threading.Thread(target=target) for target in (produce, produce, consume, consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() == base


def test_threads_under_memory_pressure() -> None:
    device = "neuron:3"
    total = torch.neuron.get_device_properties(3).total_memory
    base = torch.neuron.memory_allocated(device)
    torch.neuron.set_per_process_memory_fraction((96 << 20) / total, device)
    refused, failures = [0], []
    deadline = time.monotonic() + SECONDS / 5

    def work(seed: int) -> None:
        choose, live = random.Random(seed), []
        stream = torch.neuron.Stream(device=device)
        with torch.neuron.stream(stream):
            while time.monotonic() < deadline:
                value = choose.randrange(100)
                try:
                    tensor = torch.full((choose.choice([100, 50_000, 1_000_000, 5_000_000]),), value, device=device)
                except torch.OutOfMemoryError:
                    refused[0] += 1
                    live.clear()
                    continue
                live.append((tensor.add_(1), value + 1))
                del tensor
                if len(live) > 4:
                    kept, expected = live.pop(choose.randrange(len(live)))
                    if kept.amin().item() != expected or kept.amax().item() != expected:
                        failures.append((seed, expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    torch.neuron.set_per_process_memory_fraction(1.0, device)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == [] and refused[0] > 0
    torch.neuron.synchronize(device)
    assert torch.neuron.memory_allocated(device) == base
