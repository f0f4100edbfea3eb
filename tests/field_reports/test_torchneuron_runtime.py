"""What users of AWS's TorchNeuron met, section T: start-up, memory, random numbers, autocast, threads and teardown.

What is left out, and where it goes, stands in test_torchneuron_operators.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

DEVICE = "neuron"


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_T_07_rank_takes_the_ith_visible_core(run_script: Callable) -> None:
    script = """
        import torch
        print(torch.neuron.device_count(), torch.neuron.current_device(), torch.ones(1, device="neuron").device)
    """
    for rank in (0, 1):
        result = run_script(script, NEURON_RT_VISIBLE_CORES="2-3", LOCAL_RANK=str(rank))
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == ["2", str(rank), f"neuron:{rank}"]


def test_T_19_module_built_on_meta(random_tensor: Callable) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 3))

    torch.manual_seed(3)
    trained = build()
    with torch.device("meta"):
        module = build()
    module.to_empty(device=DEVICE)
    assert {p.device.type for p in module.parameters()} == {DEVICE}
    module.load_state_dict(trained.state_dict())
    tokens = torch.tensor([[1, 10, 4]])
    torch.testing.assert_close(module(tokens.to(DEVICE)).cpu(), trained(tokens))

    with torch.device("meta"):
        assigned = build()
    assigned.load_state_dict({k: v.to(DEVICE) for k, v in trained.state_dict().items()}, assign=True)
    torch.testing.assert_close(assigned(tokens.to(DEVICE)).cpu(), trained(tokens))


def test_T_19_item_on_meta_keeps_its_message() -> None:
    with pytest.raises(RuntimeError, match=r"Tensor\.item\(\) cannot be called on meta tensors"):
        torch.ones(1, device="meta").item()


ALIVE = """
    import torch
    layer = torch.nn.Linear(8, 8).to("neuron")
    loss = layer(torch.ones(4, 8, device="neuron")).sum()
    loss.backward()
    x = torch.ones(1000, 1000, device="neuron")
    for _ in range(20):
        x = x @ x * 1e-3
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("torch.neuron.synchronize()", 0),
        ("import os; os._exit(0)", 0),
        ("import sys; sys.exit(3)", 3),
        ("side = torch.neuron.Stream()\n    with torch.neuron.stream(side):\n        y = x + 1", 0),
    ],
    ids=["work-queued", "synchronized", "os-exit", "exit-code", "side-stream"],
)
def test_T_22_teardown_is_clean(ending: str, code: int, run_script: Callable) -> None:
    result = run_script(ALIVE + "\n    " + ending)
    assert (result.returncode, result.stderr) == (code, "")


def test_T_22_exception_keeps_its_own_exit_code(run_script: Callable) -> None:
    result = run_script(ALIVE + "\n    raise ValueError('in training')")
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1] == "ValueError: in training"
    assert "Traceback" in result.stderr.splitlines()[0]


def test_T_27_memory_stats_before_and_after_the_first_allocation(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        before = torch.neuron.memory_stats()
        assert isinstance(before, dict)
        assert torch.accelerator.memory_stats() is not None
        assert torch.neuron.memory_allocated() == 0
        x = torch.ones(1 << 20, device="neuron")
        stats = torch.neuron.memory_stats()
        assert all(type(value) is int for value in stats.values()), stats
        for kind in ("allocation", "active", "segment", "allocated_bytes", "active_bytes", "reserved_bytes"):
            for pool in ("all", "large_pool", "small_pool"):
                for metric in ("current", "peak", "allocated", "freed"):
                    assert f"{kind}.{pool}.{metric}" in stats, f"{kind}.{pool}.{metric}"
        for counter in ("num_alloc_retries", "num_ooms"):
            assert stats[counter] == 0
        assert stats["allocated_bytes.all.current"] == torch.neuron.memory_allocated() >= 4 << 20
        assert stats["reserved_bytes.all.current"] == torch.neuron.memory_reserved()
        assert torch.neuron.memory_allocated() <= torch.neuron.memory_reserved()
        assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated()
        free, total = torch.neuron.mem_get_info()
        assert 0 < free < total == torch.neuron.get_device_properties(0).total_memory
        assert total - free >= torch.neuron.memory_reserved()
        del x
        assert torch.neuron.memory_allocated() == 0
        assert torch.neuron.max_memory_allocated() >= 4 << 20
        torch.neuron.reset_peak_memory_stats()
        assert torch.neuron.max_memory_allocated() == 0
        torch.neuron.reset_accumulated_memory_stats()
        assert torch.neuron.memory_stats()["allocated_bytes.all.allocated"] == 0
        torch.neuron.empty_cache()
        assert torch.neuron.memory_reserved() == 0
        """
    )
    assert result.returncode == 0, result.stderr


def test_T_32_autocast_of_another_device_is_harmless(random_tensor: Callable) -> None:
    x, w = random_tensor(4, 4).to(DEVICE), random_tensor(4, 4).to(DEVICE)
    with torch.autocast("cuda", enabled=False):
        assert (x @ w).dtype == torch.float32
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            assert (x @ w).dtype == torch.bfloat16
            with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
                assert (x @ w).dtype == torch.bfloat16
            with torch.autocast(DEVICE, enabled=False):
                assert (x @ w).dtype == torch.float32
            with torch.autocast(DEVICE, dtype=torch.float16):
                assert (x @ w).dtype == torch.float16
            assert (x @ w).dtype == torch.bfloat16
        assert (x @ w).dtype == torch.float32
    assert not torch.is_autocast_enabled(DEVICE)


def test_T_32_cast_weights_are_forgotten_at_the_end() -> None:
    weight = nn.Parameter(torch.ones(2, 2, device=DEVICE))
    x = torch.ones(1, 2, device=DEVICE)
    for value in (1.0, 3.0):
        with torch.no_grad():
            weight.fill_(value)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            assert (x @ weight).tolist() == [[2 * value, 2 * value]]


def test_T_37_out_of_memory_is_raised_by_the_operator_that_asked(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        total = torch.neuron.mem_get_info()[1]
        x = torch.ones(64, 64, device="neuron")
        for i in range(100):
            x = x * 1.0
            if i == 50:
                try:
                    too_much = torch.empty(total + 1, dtype=torch.uint8, device="neuron")
                except torch.OutOfMemoryError as error:
                    assert i == 50
                else:
                    raise SystemExit("no error")
        joined = torch.cat([x, x])
        torch.neuron.synchronize()
        assert joined.sum().item() == 2 * 64 * 64
        """
    )
    assert result.returncode == 0, result.stderr


def test_T_52_host_does_not_run_away() -> None:
    x = torch.zeros(4, device=DEVICE)
    for _ in range(1000):
        x.add_(1)
    before = resident_bytes()
    grown = 0
    for i in range(100_000):
        x.add_(1)
        if i % 5000 == 0:
            grown = max(grown, resident_bytes() - before)
    assert x.tolist() == [101_000.0] * 4
    assert grown < 32 << 20


def test_T_54_generator_of_the_device() -> None:
    generator = torch.Generator(DEVICE).manual_seed(1)
    assert generator.device.type == DEVICE and generator.initial_seed() == 1
    first = torch.randn(3, generator=generator, device=DEVICE)
    state = generator.get_state()
    second = torch.randn(3, generator=generator, device=DEVICE)
    assert not torch.equal(first.cpu(), second.cpu())
    generator.set_state(state)
    assert torch.equal(torch.randn(3, generator=generator, device=DEVICE).cpu(), second.cpu())
    assert torch.equal(torch.randn(3, generator=generator.manual_seed(1), device=DEVICE).cpu(), first.cpu())


def test_T_54_generators_are_independent() -> None:
    def draws(disturb: bool) -> list[float]:
        torch.manual_seed(5)
        other = torch.Generator(DEVICE).manual_seed(5)
        numbers = []
        for _ in range(3):
            numbers.append(torch.rand(1, device=DEVICE).item())
            if disturb:
                torch.rand(1000, generator=other, device=DEVICE)
        return numbers

    assert draws(disturb=False) == draws(disturb=True)


def test_T_59_threads_load_weights_at_once(random_tensor: Callable) -> None:
    weights = [random_tensor(257, i + 1) for i in range(32)]

    def load(i: int) -> tuple[int, torch.Tensor]:
        return torch.neuron.current_device(), weights[i].to(DEVICE, torch.bfloat16)

    with ThreadPoolExecutor(8) as pool:
        for i, (device, loaded) in enumerate(pool.map(load, range(32))):
            assert device == 0
            assert torch.equal(loaded.cpu(), weights[i].bfloat16())


def test_T_59_first_use_of_the_device_from_many_threads(run_script: Callable) -> None:
    result = run_script(
        """
        import threading, torch
        barrier, sums = threading.Barrier(8), [None] * 8
        def work(i):
            barrier.wait()
            sums[i] = torch.full((1000,), float(i)).to("neuron").sum().item()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert sums == [1000.0 * i for i in range(8)], sums
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_T_64_seeding_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(0)
    assert torch.neuron._is_in_bad_fork() is False
    torch.neuron.manual_seed_all(7)
    first = torch.rand(2, device=DEVICE).tolist()
    torch.manual_seed(7)
    assert torch.rand(2, device=DEVICE).tolist() == first
