"""The limit of a core's memory: what is refused, with which words, and what must not be refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"

# Scripts limit a fresh process to MIB mebibytes, so that no test touches much memory of the host.
LIMITED = """
    import gc, random, re, torch
    MIB = 256
    total = torch.neuron.get_device_properties(0).total_memory
    torch.neuron.set_per_process_memory_fraction(MIB * 2**20 / total)

    def mib(n, device="neuron"):
        return torch.empty(int(n * 2**20), dtype=torch.uint8, device=device)
"""


def run_limited(run_script: Callable, body: str) -> None:
    result = run_script(LIMITED + body)
    assert (result.returncode, result.stderr) == (0, "")


def test_out_of_memory_error_has_the_numbers(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    kept = mib(100)
    cached = mib(20)
    del cached
    try:
        mib(200)
    except torch.OutOfMemoryError as error:
        text = str(error)
    else:
        raise SystemExit("no error")
    assert isinstance(text, str) and " out of memory." in text.lower(), text
    assert " out of memory." in text, text
    assert "200.00 MiB" in text, text
    for word in ("free", "reserved", "largest"):
        assert word in text.lower(), (word, text)
    assert "100.00 MiB" in text, text
    assert "neuron" in text.lower(), text
    assert torch.neuron.memory_stats()["num_ooms"] == 1
    kept.fill_(3)
    again = mib(100)
    assert kept.sum(dtype=torch.int64).item() == 3 * 100 * 2**20
    """,
    )


def test_out_of_memory_is_what_batch_size_finders_look_for(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    try:
        mib(300)
    except RuntimeError as error:
        assert isinstance(error, torch.OutOfMemoryError)
        assert len(error.args) == 1 and " out of memory." in error.args[0]
    batch, tried = 64, []
    while True:
        tried.append(batch)
        try:
            inputs = torch.zeros(batch, 1 << 19, device="neuron")
            loss = (inputs * 2).sum()
            break
        except torch.OutOfMemoryError:
            inputs = loss = None
            batch //= 2
    assert tried == [64, 32] and loss.item() == 0, tried
    """,
    )


def test_out_of_memory_in_the_middle_of_training_leaves_all_usable(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    weight = torch.ones(1 << 20, device="neuron", requires_grad=True)
    start = torch.neuron.memory_allocated()
    try:
        hidden = [weight]
        while True:
            hidden.append(hidden[-1].exp())
    except torch.OutOfMemoryError:
        pass
    del hidden
    gc.collect()
    assert torch.neuron.memory_allocated() == start
    (weight * 2).sum().backward()
    assert weight.grad.sum().item() == 2 << 20
    """,
    )


def test_the_limit_counts_this_device_only(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    kept = mib(200)
    other = mib(1000, "neuron:1")
    assert torch.neuron.memory_allocated(1) == 1000 * 2**20
    torch.neuron.set_per_process_memory_fraction(1.0)
    more = mib(200)
    """,
    )


def test_setting_a_wrong_fraction() -> None:
    for fraction in (-0.1, 1.1):
        with pytest.raises(ValueError, match="(?i)fraction"):
            torch.neuron.set_per_process_memory_fraction(fraction)
    with pytest.raises(TypeError):
        torch.neuron.set_per_process_memory_fraction("half")  # type: ignore[arg-type]
    assert torch.neuron.get_per_process_memory_fraction() == 1.0


def test_memory_is_virtual_until_touched() -> None:
    total = torch.neuron.get_device_properties(0).total_memory
    with open("/proc/self/statm") as statm:
        before = int(statm.read().split()[1]) * 4096
    x = torch.empty(int(total * 0.9), dtype=torch.uint8, device=DEVICE)
    x[-1] = 1
    assert x[-1].item() == 1
    with open("/proc/self/statm") as statm:
        assert int(statm.read().split()[1]) * 4096 - before < 64 << 20
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(int(total * 0.2), dtype=torch.uint8, device=DEVICE)
    del x
    torch.neuron.empty_cache()


def test_cached_blocks_are_released_before_giving_up(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    for size in (200, 100, 240, 10, 250):
        x = mib(size)
        x[0] = 1
        del x
    small = [torch.ones(100, device="neuron") for _ in range(1000)]
    del small
    x = mib(255)
    """,
    )


def test_cached_blocks_of_another_stream_are_released(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        x = [mib(50).fill_(i) for i in range(4)]
    del x
    y = mib(200).fill_(1)
    assert y.sum(dtype=torch.int64).item() == 200 * 2**20
    """,
    )


def test_blocks_that_wait_for_a_recorded_stream_are_waited_for(run_script: Callable) -> None:
    run_limited(
        run_script,
        """
    side = torch.neuron.Stream()
    x = mib(200).fill_(1)
    side.wait_stream(torch.neuron.current_stream())
    torch.neuron.synchronize()
    with torch.neuron.stream(side):
        slow = torch.eye(700, device="neuron")
        for _ in range(20):
            slow = slow @ slow
        total = x.sum(dtype=torch.int64)
    x.record_stream(side)
    del x
    y = mib(200).fill_(2)
    side.synchronize()
    assert total.item() == 200 * 2**20
    """,
    )


def test_releasing_blocks_does_not_pull_memory_from_under_a_stream(run_script: Callable) -> None:
    """A program that forgot record_stream reads stale values at worst: CUDA waits for the device before it unmaps."""
    run_limited(
        run_script,
        """
    side = torch.neuron.Stream()
    slow = torch.eye(2000, device="neuron")
    torch.neuron.synchronize()
    with torch.neuron.stream(side):
        for _ in range(10):
            slow = slow @ slow
    y = mib(230).fill_(2)
    side.synchronize()
    assert y.sum(dtype=torch.int64).item() == 460 * 2**20
    """,
    )


FRAGMENTING = {
    "every other block": """
    blocks = [mib(4) for _ in range(60)]
    del blocks[::2]
    large = mib(110).fill_(1)
    assert large.sum(dtype=torch.int64).item() == 110 * 2**20
    """,
    "small blocks between large ones": """
    kept = []
    for _ in range(20):
        large = mib(8)
        kept.append(torch.ones(1000, device="neuron"))
        del large
    large = mib(200).fill_(1)
    assert sum(k.sum().item() for k in kept) == 20000
    """,
    "a cache that grows": """
    cache = mib(1).fill_(1)
    for size in range(2, 110, 3):
        grown = mib(size)
        grown[: cache.numel()].copy_(cache)
        cache = grown
    assert cache[: 2**20].sum(dtype=torch.int64).item() == 2**20
    """,
    "shapes that change from step to step": """
    generator = random.Random(0)
    for step in range(40):
        live, used = [], 0
        while True:
            size = generator.choice([0.3, 1, 1.7, 3, 5.5, 9, 14, 21, 40])
            if used + size > 215:
                break
            live.append(mib(size))
            used += size
            if generator.random() < 0.3:
                gone = live.pop(generator.randrange(len(live)))
                used -= gone.numel() / 2**20
                del gone
    """,
    "falling and rising sizes": """
    for sizes in ((100, 60, 40), (50, 50, 100), (200,), (20,) * 10, (33, 66, 99)):
        live = [mib(size) for size in sizes]
        del live
    """,
    "many small blocks, then one": """
    small = [torch.empty(2**14, dtype=torch.uint8, device="neuron") for _ in range(8000)]
    del small[::2]
    large = mib(170)
    """,
}


@pytest.mark.parametrize("pattern", FRAGMENTING)
def test_fragmentation_does_not_refuse_memory_that_is_there(pattern: str, run_script: Callable) -> None:
    run_limited(run_script, FRAGMENTING[pattern])
