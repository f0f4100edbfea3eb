"""Recording of allocations, in the format that PyTorch's memory viewer (pytorch.org/memory_viz) reads."""

import pickle
import sys
from typing import Any, Literal

from .. import _C
from .devices import Device, _lazy_init


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Keep what the allocator does from now on, and where it was asked to; on all devices.

    Args:
        enabled: None stops, "state" keeps the stacks of what is allocated, "all" also the last actions.
        context: with which actions stacks are kept: None for none, "state" for what is allocated, "alloc" for
            allocations in the history too, "all" for frees too.
        stacks: "python" for Python and TorchScript frames, "all" for C++ frames too.
        max_entries: how many actions each device's history holds.
        clear_history: whether to forget what was kept before.
        skip_actions: actions to leave out, for example ["free_requested"].
        device, compile_context, global_record_annotations: taken for torch.cuda's sake, without effect.
    """
    if enabled is not None:
        _lazy_init()
    _C.record_memory_history(enabled, context, stacks, max_entries, clear_history, skip_actions or [])


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What is allocated and what was recorded: {"segments", "device_traces", "allocator_settings", ...}.

    The layout is that of `torch.cuda.memory._snapshot`; stacks are there if `_record_memory_history` was called.
    """
    snapshot = _C.memory_snapshot(None, True)
    if augment_with_fx_traces:
        from torch._utils import _augment_memory_snapshot_stack_traces

        return _augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type, return-value]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Pickle `_snapshot()` to a file that the memory viewer opens."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)
