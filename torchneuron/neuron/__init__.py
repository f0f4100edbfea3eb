"""`torch.neuron`: what a program sees of the device beyond its tensors.

The names and their meaning are those of `torch.cuda` and `torch.xpu`; what is particular to `neuron`:

* `get_executed_ops`, `get_fallback_ops` and `clear_op_tracking` tell which operators ran on the device.
* `match_cpu_random` draws the random numbers that the CPU would.
* `get_device_properties(...).is_emulated` is True.
"""

import atexit
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from torch import AcceleratorError, OutOfMemoryError

from .. import _C
from . import amp, devices, graphs, memory, random, streams
from .devices import (
    NeuronDeviceProperties,
    can_device_access_peer,
    clock_rate,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    get_sync_debug_mode,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    memory_usage,
    power_draw,
    set_device,
    set_sync_debug_mode,
    synchronize,
    temperature,
    utilization,
)
from .graphs import NeuronGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .memory import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    change_current_allocator,
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    match_cpu_random,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .sharing import ipc_collect
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from .tracking import OpStats, clear_op_tracking, get_executed_ops, get_fallback_ops

# Importable as `torch.neuron.<name>` too.
SUBMODULES = ("amp", "graphs", "memory", "random", "streams")

__all__ = [
    "AcceleratorError",
    "Event",
    "ExternalStream",
    "MemPool",
    "NeuronDeviceProperties",
    "NeuronGraph",
    "OpStats",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "change_current_allocator",
    "clear_op_tracking",
    "clock_rate",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_executed_ops",
    "get_fallback_ops",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "match_cpu_random",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "power_draw",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
    "temperature",
    "use_mem_pool",
    "utilization",
]

# What PyTorch itself asks of a device's module.
_get_device_index = devices._get_device_index
_is_in_bad_fork = devices._is_in_bad_fork
_lazy_call = devices._lazy_call
_lazy_init = devices._lazy_init
_utils = devices
_get_generator = random._get_generator
_get_rng_state_offset = random._get_rng_state_offset
_set_rng_state_offset = random._set_rng_state_offset
_sleep = streams._sleep


def _end_queued_work() -> None:
    """Finish it, or after Ctrl-C drop it, before Python and PyTorch take down what it uses."""
    try:
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            raise KeyboardInterrupt
        _C.finish_queued_work()
    except KeyboardInterrupt:
        _C.abandon_queued_work()


devices.register_instances()


def _let_autograd_threads_finish() -> None:
    """Lets the threads of a last `backward()` have the GIL once more.

    They release what the graph held of Python after `backward()` has returned. Where the interpreter ends first,
    Python ends such a thread in the middle of C++, and that ends the process by std::terminate().
    """
    with contextlib.suppress(OSError):  # a thread that ends meanwhile
        if any(path.read_text().startswith("pt_autograd_") for path in Path("/proc/self/task").glob("*/comm")):
            time.sleep(0.005)


atexit.register(_end_queued_work)
atexit.register(_let_autograd_threads_finish)


def __getattr__(name: str) -> Any:
    # Asked each time: the device may be started from C++, and its count is known once the environment was read.
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    # Inductor asks for them by name before it compiles its first graph, which is when it has to know the device.
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        from ..compile import inductor

        return getattr(inductor, name)
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
