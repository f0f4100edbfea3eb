"""The host runs ahead of the device, but not away: calls return early, waits free the GIL, queues are bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch

DEVICE = "neuron"


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def matmul_chain(length: int = 40) -> torch.Tensor:
    x = torch.eye(1024, device=DEVICE)
    for _ in range(length):
        x = x @ x
    return x


def test_a_long_computation_returns_to_python_at_once() -> None:
    x = torch.randn(2048, 2048, device=DEVICE)
    x @ x
    torch.neuron.synchronize()
    start = time.perf_counter()
    x @ x
    torch.neuron.synchronize()
    one = time.perf_counter() - start
    length = max(2, round(1 / one))
    ratios = []
    for _ in range(3):
        start = time.perf_counter()
        y = x
        for _ in range(length):
            y = y @ x
        returned = time.perf_counter() - start
        torch.neuron.synchronize()
        ratios.append(returned / (time.perf_counter() - start))
    assert min(ratios) < 0.01, ratios


def test_waiting_gives_up_the_gil() -> None:
    for wait in (
        torch.neuron.synchronize,
        lambda: x.sum().item(),
        lambda: x.cpu(),
        lambda: torch.neuron.current_stream().synchronize(),
        lambda: torch.neuron.current_stream().record_event().synchronize(),
    ):
        x = matmul_chain(20)
        counter, done = [0], threading.Event()

        def count() -> None:
            while not done.is_set():
                counter[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        while counter[0] == 0:
            pass
        before = counter[0]
        wait()
        progressed = counter[0] - before
        done.set()
        thread.join()
        assert progressed > 1000, "another Python thread did not run while this one waited"


def test_tiny_operators_do_not_grow_the_host() -> None:
    x = torch.zeros(8, device=DEVICE)
    for _ in range(3000):
        x.add_(1)
    before = resident_bytes()
    grown = 0
    for i in range(100_000):
        x.add_(1)
        if i % 2000 == 0:
            grown = max(grown, resident_bytes() - before)
    assert x.tolist() == [103_000.0] * 8
    assert grown < 32 << 20


def test_a_full_queue_frees_the_gil_while_it_blocks() -> None:
    progressed = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            progressed[0] += 1

    thread = threading.Thread(target=count)
    matmul_chain(20)
    x = torch.zeros(8, device=DEVICE)
    thread.start()
    for _ in range(10_000):
        x.add_(1)
    stop.set()
    thread.join()
    assert progressed[0] > 1000
    assert x[0].item() == 10_000


def test_host_tensors_held_by_the_queue_are_bounded() -> None:
    index = torch.arange(1 << 20)
    x = torch.ones(1 << 20, device=DEVICE)
    x[index]
    torch.neuron.synchronize()
    before = resident_bytes()
    matmul_chain()
    grown = 0
    for _ in range(150):
        picked = x[index.clone()]
        grown = max(grown, resident_bytes() - before)
    assert picked.sum().item() == 1 << 20
    assert grown < 700 << 20, "150 index lists of 8 MiB were held at once"


def test_device_memory_in_flight_is_reused() -> None:
    torch.neuron.synchronize()
    x = torch.ones(1 << 20, device=DEVICE)
    torch.neuron.reset_peak_memory_stats()
    base = torch.neuron.memory_allocated()
    matmul_chain(5)
    for _ in range(500):
        x = x * 1.0
    assert x.sum().item() == 1 << 20
    assert torch.neuron.max_memory_allocated() - base < 64 << 20


def test_importing_starts_no_thread_and_uses_no_device(run_script: Callable) -> None:
    result = run_script(
        """
        import os, torch
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, threads
        assert torch.device("neuron", 1).index == 1
        assert torch.neuron.is_available() and torch.neuron.device_count() == 4
        assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "neuron"
        torch.manual_seed(1)
        assert torch.neuron.memory_allocated() == 0
        assert torch.neuron.is_initialized() is False and torch.neuron._initialized is False
        assert len(os.listdir("/proc/self/task")) == threads
        torch.ones(1, device="neuron").item()
        assert torch.neuron.is_initialized() is True
        assert len(os.listdir("/proc/self/task")) > threads
        """,
        OMP_NUM_THREADS="1",
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_seeds_set_before_first_use_count(run_script: Callable) -> None:
    script = """
        import torch
        torch.manual_seed(42)
        print(torch.rand(2, device="neuron").tolist(), torch.neuron.initial_seed())
    """
    first, second = run_script(script), run_script(script)
    assert first.stdout == second.stdout and "42" in first.stdout, first.stderr
