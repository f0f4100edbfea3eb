"""The memory of `neuron`: what is in use, its limit, and private pools. Sizes are in bytes."""

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from typing_extensions import deprecated  # a requirement of torch

from .. import _C
from .devices import Device, _get_device_index, _lazy_init
from .memory_history import _dump_snapshot, _record_memory_history, _snapshot
from .memory_summary import memory_summary

__all__ = [
    "MemPool",
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def empty_cache() -> None:
    """Give cached blocks that no tensor uses back to the host. Waits for the devices' queued work."""
    if _C.initialized():
        _C.empty_cache((0, 0))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """`memory_stats` as nested dictionaries. Before the first use of the device all numbers are 0."""
    return _C.memory_stats(_get_device_index(device, optional=True))


def memory_stats(device: Device = None) -> "OrderedDict[str, int]":
    """The allocator's statistics with the keys of `torch.cuda.memory_stats`.

    "allocation", "segment", "active" and "inactive_split" are counts; "allocated_bytes", "reserved_bytes",
    "active_bytes", "inactive_split_bytes" and "requested_bytes" are sums; each has ".{all,small_pool,large_pool}" (the
    small pool serves requests below 1 MiB) and ".{current,peak,allocated,freed}". Further "num_alloc_retries" (cached
    blocks had to be released first), "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams".
    """
    return _flatten(memory_stats_as_nested_dict(device))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats` as nested dictionaries."""
    return _C.host_memory_stats()


def host_memory_stats() -> "OrderedDict[str, int]":
    """Statistics of pinned host memory with the keys of `torch.cuda.host_memory_stats`."""
    return _flatten(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    """Start "allocated" and "freed" of `host_memory_stats` anew."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Start "peak" of `host_memory_stats` anew."""
    _C.reset_peak_host_memory_stats()


def _flatten(nested: Mapping[Any, Any]) -> "OrderedDict[str, int]":
    def items(prefix: str, value: Mapping[Any, Any]) -> Iterator[tuple[str, int]]:
        for key, inner in value.items():
            name = prefix + ("_".join(map(str, key)) if isinstance(key, tuple) else key)
            if isinstance(inner, Mapping):
                yield from items(name + ".", inner)
            else:
                yield name, inner

    return OrderedDict(sorted(items("", nested)))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start "allocated", "freed" and the event counters of `memory_stats` anew."""
    _C.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start "peak" of `memory_stats`, and so `max_memory_allocated` and `max_memory_reserved`, anew."""
    _C.reset_peak_memory_stats(_get_device_index(device, optional=True))


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors use now."""
    return memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors used at once."""
    return memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds now, for tensors and in its cache. The memory limit is on these."""
    return memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["current"]


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the allocator held at once."""
    return memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["peak"]


@deprecated("`memory_cached` has been renamed to `memory_reserved`", category=FutureWarning)
def memory_cached(device: Device = None) -> int:
    """Deprecated name of `memory_reserved`."""
    return memory_reserved(device)


@deprecated("`max_memory_cached` has been renamed to `max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: Device = None) -> int:
    """Deprecated name of `max_memory_reserved`."""
    return max_memory_reserved(device)


@deprecated("`reset_max_memory_allocated` resets all peaks, as `reset_peak_memory_stats`", category=FutureWarning)
def reset_max_memory_allocated(device: Device = None) -> None:
    """Deprecated name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


@deprecated("`reset_max_memory_cached` resets all peaks, as `reset_peak_memory_stats`", category=FutureWarning)
def reset_max_memory_cached(device: Device = None) -> None:
    """Deprecated name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the core's HBM. Only this process's use counts, since the memory is emulated."""
    return _C.memory_info(_get_device_index(device, optional=True))


def device_memory_used(device: Device = None) -> int:
    """Bytes of the core's HBM that are taken."""
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process use only `fraction` (0 to 1) of the device's memory; beyond it is out of memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C.set_memory_fraction(fraction, _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """What `set_per_process_memory_fraction` set; 1.0 at first."""
    return _C.memory_fraction(_get_device_index(device, optional=True))


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The allocator's segments and their blocks, on all devices or of one pool, in `torch.cuda`'s layout."""
    return _C.memory_snapshot(mempool_id, False)["segments"]


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | int | None = None) -> int:
    """Allocate `size` bytes for work on `stream` (default: the current one) and return their address.

    For use with other libraries; `caching_allocator_delete` frees them.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if stream is None:
        stream = _C.current_stream(index)[0]
    elif isinstance(stream, torch.Stream):
        stream = stream.stream_id
    elif not isinstance(stream, int):
        raise TypeError("Invalid type for stream argument, must be `torch.neuron.Stream` or its `neuron_stream`")
    return _C.raw_alloc(size, index, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what `caching_allocator_alloc` returned. Raises ValueError for another address."""
    _C.raw_delete(mem_ptr)


def get_allocator_backend() -> str:
    """The name of the only allocator: "native"."""
    return "native"


def change_current_allocator(allocator: Any) -> None:
    """Raises RuntimeError: the emulated HBM and its limit are the allocator's."""
    raise RuntimeError("neuron has one allocator, which also emulates the device's memory; it cannot be changed")


class MemPool:
    """A private pool of device memory for `use_mem_pool`. It ends when this object and its tensors are gone."""

    def __init__(self) -> None:
        self._id = _C.new_pool_id()
        self._devices: set[int] = set()
        # Released by the pool's end, not by that of a use, so that the next use finds the memory.
        self._finalizer = weakref.finalize(self, _release_pool, self._id, self._devices)
        self._finalizer.atexit = False

    @property
    def id(self) -> tuple[int, int]:
        return self._id

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments; see `memory_snapshot`."""
        return memory_snapshot(self._id, include_traces)


def _release_pool(pool: tuple[int, int], devices: set[int]) -> None:
    for index in devices:
        _C.release_pool(index, pool)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """What this thread allocates on `device` (default: the current one) within comes from `pool`."""
    index = _get_device_index(device, optional=True)
    _lazy_init()
    _C.begin_allocate_to_pool(index, pool.id)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(index, pool.id)
        if index in pool._devices:
            _C.release_pool(index, pool.id)
        else:
            pool._devices.add(index)
