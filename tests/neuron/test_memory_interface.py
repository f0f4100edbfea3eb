"""What `torch.neuron` says of memory has the layout of `torch.cuda`, and PyTorch's own tools read it."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_history() -> Iterator[None]:
    gc.collect()
    torch.neuron.synchronize()
    yield
    torch.neuron.memory._record_memory_history(None)


def documented(function: object) -> set[str]:
    """The keys that torch.cuda's own documentation of `function` lists, spelled out."""
    keys = set()
    for text in re.findall(r'``"([a-z_.{},]+)"``', function.__doc__ or ""):
        names = [""]
        for part in re.split(r"(\{.*?\})", text):
            options = part[1:-1].split(",") if part.startswith("{") else [part]
            names = [name + option for name in names for option in options]
        keys.update(names)
    return keys


def test_keys_are_those_that_cuda_documents() -> None:
    # Its documentation says "allocated" for the count that it returns, and everybody reads, as "allocation".
    expected = {re.sub(r"^allocated\.", "allocation.", key) for key in documented(torch.cuda.memory_stats)} - {
        "all",
        "large_pool",
        "small_pool",
        "current",
        "peak",
        "allocated",
        "freed",
        "reserved_bytes_by_private_pools",
        "_",
    }
    assert len(expected) > 100
    stats = torch.neuron.memory_stats()
    assert expected - set(stats) == set()
    assert all(type(value) is int and value >= 0 for value in stats.values())
    assert list(stats) == sorted(stats)


def test_host_keys_are_those_that_cuda_documents() -> None:
    pinned = torch.ones(1000).pin_memory()
    expected = {key for key in documented(torch.cuda.host_memory_stats) if "." in key or key.startswith("num_")}
    assert len(expected) > 15
    stats = torch.neuron.host_memory_stats()
    assert expected - set(stats) == set()
    assert stats["active_bytes.current"] >= 4000 and stats["active_requests.current"] >= 1
    torch.neuron.reset_peak_host_memory_stats()
    torch.neuron.reset_accumulated_host_memory_stats()
    assert torch.neuron.host_memory_stats()["allocations.allocated"] == 0
    assert pinned.is_pinned()


def test_nested_and_flat_agree() -> None:
    x = torch.ones(3 * MIB, device="neuron")
    nested, flat = torch.neuron.memory_stats_as_nested_dict(), torch.neuron.memory_stats()
    for kind in ("allocated_bytes", "segment"):
        for pool in ("all", "small_pool", "large_pool"):
            for metric, value in nested[kind][pool].items():
                assert flat[f"{kind}.{pool}.{metric}"] == value
    assert flat["allocated_bytes.large_pool.current"] >= x.nbytes
    assert torch.neuron.memory_allocated() == flat["allocated_bytes.all.current"]
    assert torch.neuron.memory_reserved() == flat["reserved_bytes.all.current"]
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == flat["allocated_bytes.all.current"]


def test_free_and_used_make_the_whole() -> None:
    x = torch.ones(3 * MIB, device="neuron")
    free, total = torch.neuron.mem_get_info()
    assert total == torch.neuron.get_device_properties().total_memory
    assert torch.neuron.device_memory_used() == total - free >= x.nbytes
    assert (free, total) == torch.accelerator.get_memory_info()


def test_fraction() -> None:
    assert torch.neuron.get_per_process_memory_fraction(3) == 1.0
    with pytest.raises(TypeError):
        torch.neuron.set_per_process_memory_fraction(1, 3)
    with pytest.raises(ValueError, match="0~1"):
        torch.neuron.set_per_process_memory_fraction(1.5, 3)
    try:
        torch.neuron.set_per_process_memory_fraction(1 / 1024, 3)
        assert torch.neuron.get_per_process_memory_fraction("neuron:3") == 1 / 1024
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(25 * MIB, dtype=torch.uint8, device="neuron:3")
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0, 3)
    torch.empty(25 * MIB, dtype=torch.uint8, device="neuron:3")


def test_summary() -> None:
    x = torch.ones(3 * MIB, device="neuron")
    text = torch.neuron.memory_summary()
    assert "neuron:0" in text and "emulated" in text and "24.0 GiB" in text
    assert re.search(r"\| Allocated memory +\| +\d+\.\d MiB", text)
    assert text.count("small pool") == 9 and "pool" not in torch.neuron.memory_summary(abbreviated=True)
    assert len({len(line) for line in text.splitlines()[2:]}) == 1
    assert x.numel() == 3 * MIB


def test_bare_allocations() -> None:
    before = torch.neuron.memory_allocated()
    side = torch.neuron.Stream()
    addresses = [
        torch.neuron.caching_allocator_alloc(MIB),
        torch.neuron.caching_allocator_alloc(MIB, "neuron:0", side),
        torch.neuron.caching_allocator_alloc(MIB, 0, side.neuron_stream),
    ]
    assert len(set(addresses)) == 3 and torch.neuron.memory_allocated() == before + 3 * MIB
    for address in addresses:
        torch.neuron.caching_allocator_delete(address)
    assert torch.neuron.memory_allocated() == before
    with pytest.raises(ValueError):
        torch.neuron.caching_allocator_delete(addresses[0])
    with pytest.raises(TypeError, match="stream"):
        torch.neuron.caching_allocator_alloc(1, stream="side")  # type: ignore[arg-type]


def test_snapshot_has_the_layout_of_cuda() -> None:
    torch.neuron.memory._record_memory_history()
    x = torch.ones(3 * MIB, device="neuron")
    y = torch.ones(7, device="neuron")
    del y
    snapshot = torch.neuron.memory._snapshot()
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert len(snapshot["device_traces"]) == torch.neuron.device_count()
    for segment in snapshot["segments"]:
        assert {"address", "total_size", "stream", "segment_type", "segment_pool_id", "device"} <= set(segment)
        assert segment["segment_type"] in ("small", "large")
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        assert (
            sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated") == segment["allocated_size"]
        )
        assert [b["address"] for b in segment["blocks"]] == sorted(b["address"] for b in segment["blocks"])
        assert segment["blocks"][0]["address"] == segment["address"]
    ours = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert [block["requested_size"] for block in ours] == [x.nbytes]
    assert any(f["name"] == "test_snapshot_has_the_layout_of_cuda" for f in ours[0]["frames"])
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions.count("alloc") == 2 and "free_requested" in actions and "free_completed" in actions
    times = [entry["time_us"] for entry in snapshot["device_traces"][0]]
    assert times == sorted(times) and times[0] > 1.5e15
    assert torch.neuron.memory_snapshot() == [{**segment} for segment in torch.neuron.memory._snapshot()["segments"]]


def test_viewers_read_snapshots(tmp_path: Path) -> None:
    torch.neuron.memory._record_memory_history(stacks="python")
    x = [torch.ones(MIB, device="neuron") for _ in range(3)]
    del x[1]
    path = tmp_path / "snapshot.pickle"
    torch.neuron.memory._dump_snapshot(str(path))
    snapshot = pickle.loads(path.read_bytes())
    assert "b = seg_" in _memory_viz.trace(snapshot) and "del b # 4.0MiB" in _memory_viz.trace(snapshot)
    assert "MiB allocated" in _memory_viz.segsum(snapshot)
    plain = _memory_viz.memory(snapshot, format_flamegraph=str)
    assert "test_memory_interface.py" in plain and "inactive" in plain
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "<html" in plot(snapshot).lower() or "<script" in plot(snapshot).lower()
    augmented = torch.neuron.memory._snapshot(augment_with_fx_traces=True)
    assert len(augmented["segments"]) == len(snapshot["segments"])


def recorded_actions() -> list[str]:
    x = torch.ones(5, device="neuron")
    del x
    return [entry["action"] for entry in torch.neuron.memory._snapshot()["device_traces"][0]]


def test_what_is_recorded_is_a_choice() -> None:
    record = torch.neuron.memory._record_memory_history
    assert recorded_actions() == []
    record(skip_actions=["free_requested"])
    assert "alloc" in recorded_actions() and "free_requested" not in recorded_actions()
    record(max_entries=2, clear_history=True)
    assert len(recorded_actions()) == 2
    record(context=None, clear_history=True)
    assert "alloc" in recorded_actions()
    assert all(entry["frames"] == [] for entry in torch.neuron.memory._snapshot()["device_traces"][0])
    record("state", clear_history=True)
    assert len(recorded_actions()) <= 1
    record(None, clear_history=True)
    assert recorded_actions() == []
    for wrong in ({"enabled": "some"}, {"context": "some"}, {"stacks": "some"}):
        with pytest.raises(ValueError, match="may be None or one of"):
            record(**wrong)
    with pytest.raises(RuntimeError, match="TraceEntry"):
        record(skip_actions=["some"])


def test_private_pools() -> None:
    pool, other = torch.neuron.MemPool(), torch.neuron.MemPool()
    assert pool.id != other.id
    outside = torch.ones(MIB, device="neuron")
    with torch.neuron.use_mem_pool(pool):
        inside = torch.ones(MIB, device="neuron")
    again = torch.ones(MIB, device="neuron")

    (segment,) = pool.snapshot()
    held = range(segment["address"], segment["address"] + segment["total_size"])
    assert inside.data_ptr() in held and outside.data_ptr() not in held and again.data_ptr() not in held
    assert segment["segment_pool_id"] == pool.id and other.snapshot() == []
    address = inside.data_ptr()
    del inside
    assert torch.ones(MIB, device="neuron").data_ptr() != address
    with torch.neuron.use_mem_pool(pool, "neuron:0"):
        assert torch.ones(MIB, device="neuron").data_ptr() == address
    del pool
    gc.collect()
    torch.neuron.empty_cache()
    addresses = [segment["address"] for segment in torch.neuron.memory_snapshot()]
    assert address not in addresses


def test_pool_ends_after_its_tensors() -> None:
    pool = torch.neuron.MemPool()
    with torch.neuron.use_mem_pool(pool):
        x = torch.full((MIB,), 3.0, device="neuron")
    del pool
    gc.collect()
    torch.neuron.empty_cache()
    y = torch.zeros(MIB, device="neuron")
    assert x.eq(3).all().item() and y.eq(0).all().item()
