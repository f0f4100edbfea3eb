"""`torch.neuron.memory_summary`: the allocator's statistics as a table."""

from typing import Any

from .. import _C
from .devices import Device, _get_device_index, get_device_name

_ROWS = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "Reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "Reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_METRICS = ("current", "peak", "allocated", "freed")


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of `memory_stats`; `abbreviated` leaves the small and large pools out."""
    index = _get_device_index(device, optional=True)
    stats = _C.memory_stats(index)
    free, total = _C.memory_info(index)

    title = f"Memory of {get_device_name(index)}: {_bytes(free)} free of {_bytes(total)}"
    events = f"out of memory: {stats['num_ooms']}   retries after releasing cached blocks: {stats['num_alloc_retries']}"
    head = _row("Metric", ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"))
    rule = "-" * len(head)
    lines = [title, events, rule, head, rule]
    for key, label in _ROWS:
        show = _bytes if key.endswith("_bytes") else str
        lines.append(_metric_row(label, stats[key]["all"], show))
        if not abbreviated:
            lines.append(_metric_row("  from large pool", stats[key]["large_pool"], show))
            lines.append(_metric_row("  from small pool", stats[key]["small_pool"], show))
    lines.append(rule)
    return "\n".join(lines) + "\n"


def _metric_row(label: str, stat: dict[str, int], show: Any) -> str:
    return _row(label, tuple(show(stat[metric]) for metric in _METRICS))


def _row(label: str, cells: tuple[str, ...]) -> str:
    return "| " + " | ".join([f"{label:<22}", *(f"{cell:>10}" for cell in cells)]) + " |"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
