"""What torch.neuron says about its memory: counters, snapshots, histories; and that memory returns."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.cuda import _memory_viz

DEVICE = "neuron"


@pytest.fixture(autouse=True)
def settled() -> None:
    gc.collect()
    torch.neuron.synchronize()


def consistent(stats: dict[str, int]) -> None:
    for kind in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes"):
        for metric in ("current", "peak", "allocated", "freed"):
            pools = [stats[f"{kind}.{pool}.{metric}"] for pool in ("all", "large_pool", "small_pool")]
            assert all(value >= 0 for value in pools)
            if metric != "peak":
                assert pools[0] == pools[1] + pools[2], (kind, metric)
        assert stats[f"{kind}.all.current"] == stats[f"{kind}.all.allocated"] - stats[f"{kind}.all.freed"], kind
        assert stats[f"{kind}.all.current"] <= stats[f"{kind}.all.peak"], kind
    assert stats["allocated_bytes.all.current"] <= stats["active_bytes.all.current"]
    assert stats["active_bytes.all.current"] <= stats["reserved_bytes.all.current"]


def test_statistics_stay_consistent(run_script: Callable) -> None:
    generator = random.Random(1)
    live: list[torch.Tensor] = []
    base = torch.neuron.memory_allocated()
    before = torch.neuron.memory_stats()
    asked = 0
    for _ in range(500):
        if live and generator.random() < 0.45:
            live.pop(generator.randrange(len(live)))
        else:
            size = generator.choice([1, 511, 512, 513, 5000, 1 << 20, (1 << 20) + 1, 3 << 20])
            live.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
            asked += 1
        needed = sum(t.numel() for t in live)
        allocated = torch.neuron.memory_allocated() - base
        # Sizes are rounded up to 512 bytes; a large block is not split for a rest of a MiB or less, as on CUDA.
        most = sum(t.numel() + (512 if t.numel() <= 1 << 20 else (1 << 20) + 512) for t in live)
        assert needed <= allocated <= most
    stats = torch.neuron.memory_stats()
    consistent(stats)
    assert stats["allocation.all.allocated"] - before["allocation.all.allocated"] == asked
    assert stats["allocation.all.current"] - before["allocation.all.current"] == len(live)
    live.clear()
    assert torch.neuron.memory_allocated() == base
    consistent(torch.neuron.memory_stats())


def test_peaks_and_their_reset() -> None:
    base = torch.neuron.memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == base
    x = torch.empty(6 << 20, dtype=torch.uint8, device=DEVICE)
    del x
    assert torch.neuron.max_memory_allocated() == base + (6 << 20)
    assert torch.neuron.max_memory_reserved() >= torch.neuron.max_memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == base
    torch.neuron.reset_accumulated_memory_stats()
    stats = torch.neuron.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0
    assert stats["allocated_bytes.all.current"] == base


def test_statistics_are_of_one_device() -> None:
    here, there = torch.neuron.memory_allocated(0), torch.neuron.memory_allocated("neuron:1")
    x = torch.empty(1 << 20, dtype=torch.uint8, device="neuron:1")
    assert torch.neuron.memory_allocated(0) == here
    assert torch.neuron.memory_allocated(torch.device("neuron:1")) == there + (1 << 20)
    with torch.neuron.device(1):
        assert torch.neuron.memory_allocated() == there + (1 << 20)
    del x


def test_empty_tensors_take_no_memory() -> None:
    base = torch.neuron.memory_allocated()
    x, y = torch.empty(0, device=DEVICE), torch.zeros(3, 0, 2, device=DEVICE)
    assert torch.neuron.memory_allocated() == base
    assert x.data_ptr() == 0 and (x + 1).numel() == 0 and y.sum().item() == 0


def test_training_returns_its_memory() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(32, 64, device=DEVICE)).square().mean().backward()
            optimizer.step()

    train()
    gc.collect()
    base = torch.neuron.memory_allocated()
    for _ in range(3):
        train()
    gc.collect()
    assert torch.neuron.memory_allocated() == base


def test_views_and_resized_storages_free_what_they_should() -> None:
    base = torch.neuron.memory_allocated()
    x = torch.empty(4 << 20, dtype=torch.uint8, device=DEVICE)
    view = x[: 1 << 20].view(1024, 1024)
    del x
    assert torch.neuron.memory_allocated() == base + (4 << 20)
    view.untyped_storage().resize_(0)
    assert torch.neuron.memory_allocated() == base
    view.untyped_storage().resize_(1 << 20)
    assert torch.neuron.memory_allocated() == base + (1 << 20)
    del view
    assert torch.neuron.memory_allocated() == base


def test_empty_cache_returns_everything(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        x = [torch.ones(1 << n, device="neuron") for n in range(20)]
        side = torch.neuron.Stream()
        with torch.neuron.stream(side):
            y = torch.ones(1 << 20, device="neuron") * 2
        assert torch.neuron.memory_reserved() > 0
        del x, y
        torch.neuron.empty_cache()
        assert torch.neuron.memory_reserved() == torch.neuron.memory_allocated() == 0
        free, total = torch.neuron.mem_get_info()
        assert free == total
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_freed_memory_is_reused_at_once_on_its_stream() -> None:
    x = torch.ones(3 << 20, device=DEVICE)
    address = x.data_ptr()
    del x
    y = torch.empty(3 << 20, device=DEVICE)
    assert y.data_ptr() == address


def test_memory_of_another_stream_is_not_taken() -> None:
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        x = torch.ones(3 << 20, device=DEVICE)
        address = x.data_ptr()
    del x
    y = torch.empty(3 << 20, device=DEVICE)
    assert y.data_ptr() != address
    with torch.neuron.stream(side):
        assert torch.empty(3 << 20, device=DEVICE).data_ptr() == address


def test_memory_is_zeroed_or_not_but_never_shared() -> None:
    blocks = [torch.full((300,), float(i), device=DEVICE) for i in range(200)]
    del blocks[::3]
    fresh = [torch.full((300,), -1.0, device=DEVICE) for _ in range(100)]
    survivors = [i for i in range(200) if i % 3]
    assert [b[0].item() for b in blocks] == survivors
    assert all(f.eq(-1).all().item() for f in fresh)
    pointers = {t.data_ptr() for t in [*blocks, *fresh]}
    assert len(pointers) == len(blocks) + len(fresh)
    assert all(pointer % 64 == 0 for pointer in pointers)


def test_snapshot_lists_segments_and_blocks() -> None:
    x = torch.empty(1000, device=DEVICE)
    segments = torch.neuron.memory_snapshot()
    assert isinstance(segments, list)
    for segment in segments:
        for key in ("device", "address", "total_size", "allocated_size", "active_size", "stream", "segment_type"):
            assert key in segment, key
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
        assert segment["segment_type"] in ("small", "large")
        offset = segment["address"]
        for block in segment["blocks"]:
            assert block["state"] in ("active_allocated", "active_awaiting_free", "active_pending_free", "inactive")
            assert block.get("address", offset) == offset
            offset += block["size"]
    here = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert len(here) == 1 and here[0]["device"] == 0
    reserved = sum(s["total_size"] for s in segments if s["device"] == 0)
    assert reserved == torch.neuron.memory_reserved(0)


def test_memory_history_opens_in_the_viewer(tmp_path) -> None:
    torch.neuron.memory._record_memory_history(max_entries=1000)
    try:
        marked = torch.empty(5 << 20, dtype=torch.uint8, device=DEVICE)
        address = marked.data_ptr()
        del marked
        snapshot = torch.neuron.memory._snapshot()
        torch.neuron.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    finally:
        torch.neuron.memory._record_memory_history(enabled=None)
    assert {"segments", "device_traces"} <= set(snapshot)
    trace = snapshot["device_traces"][0]
    actions = [event["action"] for event in trace if event["addr"] == address]
    assert "alloc" in actions and "free_requested" in actions and "free_completed" in actions
    allocation = next(event for event in trace if event["action"] == "alloc" and event["addr"] == address)
    assert allocation["size"] == 5 << 20
    assert any(frame["filename"].endswith("test_memory_statistics.py") for frame in allocation["frames"])
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        dumped = pickle.load(file)
    for report in (_memory_viz.segsum, _memory_viz.trace):
        assert report(dumped)
    after = torch.empty(1 << 20, device=DEVICE)
    assert not [e for e in torch.neuron.memory._snapshot()["device_traces"][0] if e["addr"] == after.data_ptr()]


def test_memory_summary_is_readable() -> None:
    x = torch.empty(1 << 20, device=DEVICE)
    for text in (torch.neuron.memory_summary(), torch.neuron.memory_summary(0, abbreviated=True)):
        assert "Allocated memory" in text and "neuron" in text.lower() and "MiB" in text
    del x


def test_record_stream_keeps_a_block_until_its_stream_has_passed() -> None:
    side = torch.neuron.Stream()
    slow = torch.eye(1024, device=DEVICE)
    x = torch.full((2 << 20,), 3.0, device=DEVICE)
    address = x.data_ptr()
    torch.neuron.synchronize()
    base = torch.neuron.memory_allocated()
    with torch.neuron.stream(side):
        for _ in range(30):
            slow.copy_(slow @ slow)
        total = x.sum()
    x.record_stream(side)
    del x
    assert torch.neuron.memory_allocated() < base
    stats = torch.neuron.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] >= 8 << 20
    fresh = [torch.full((2 << 20,), 9.0, device=DEVICE) for _ in range(3)]
    assert not side.query()
    assert address not in [f.data_ptr() for f in fresh]
    side.synchronize()
    assert total.item() == 3.0 * (2 << 20)
    del fresh
    torch.neuron.synchronize()
    reused = [torch.empty(2 << 20, device=DEVICE) for _ in range(5)]
    assert address in [r.data_ptr() for r in reused]
