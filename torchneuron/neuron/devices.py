"""Which devices there are, which is current, and what is known of them."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch

from .. import _C
from ..trainium import CHIPS, INSTANCES, Chip

Device = torch.device | str | int | None


@dataclass(frozen=True, repr=False)
class NeuronDeviceProperties:
    """What `torch.neuron.get_device_properties` returns: one logical NeuronCore.

    The figures are those of the emulated hardware, from the tables of `torchneuron.trainium` and their sources there.
    """

    name: str  # of the chip, as on the real device: "trn1", "inf2", "trn2", "trn3"
    major: int  # version of the NeuronCore
    minor: int
    total_memory: int  # bytes of HBM
    multi_processor_count: int  # physical NeuronCores that form this logical one
    instance: str
    chip_index: int  # which of the instance's chips
    core_index: int  # which of the instance's logical cores
    is_emulated: bool = True

    @property
    def uuid(self) -> Any:
        """A `uuid.UUID` that names the same core in every process of a host."""
        import uuid

        return uuid.uuid5(uuid.NAMESPACE_OID, f"torchneuron/{uuid.getnode()}/{self.instance}/{self.core_index}")

    def __repr__(self) -> str:
        return (
            f"NeuronDeviceProperties(name='{self.name}', is_emulated={self.is_emulated}, instance='{self.instance}', "
            f"core_index={self.core_index}, chip_index={self.chip_index}, major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"
        )


Function = TypeVar("Function", bound=Callable[..., object])


def _constant(function: Function) -> Function:
    """Let Dynamo call `function` while it traces, and take the answer for a constant."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def register_instances() -> None:
    """Hand the tables of `torchneuron.trainium` to the runtime, which reads the environment by them."""
    _C.register_instances(
        [
            (i.name, i.chip.name, i.chips, i.chip.cores, i.chip.default_lnc, i.chip.lnc_selectable, i.chip.hbm_bytes)
            for i in INSTANCES.values()
        ]
    )


@_constant
def is_available() -> bool:
    """Whether there is at least one device."""
    return device_count() > 0


@_constant
def device_count() -> int:
    """How many devices there are, at most 127.

    None, and a warning, where an environment variable is wrong: libraries that ask this choose the CPU without a word.
    """
    try:
        return _C.device_count()
    except ValueError as error:
        _warn_of_environment(str(error))
        return 0


@functools.cache
def _warn_of_environment(reason: str) -> None:
    warnings.warn(f"no neuron device is available: {reason}", RuntimeWarning, stacklevel=3)


def is_initialized() -> bool:
    """Whether this process has used a device."""
    return _C.initialized()


def init() -> None:
    """Start the device now rather than on first use. Raises RuntimeError in a child forked after that use."""
    _lazy_init()


_calls_at_start: list[Callable[[], object]] = []


def _lazy_init() -> None:
    _C.ensure_usable()
    while _calls_at_start:
        _calls_at_start.pop(0)()


def _lazy_call(call: Callable[[], object], **_: object) -> None:
    if _C.initialized():
        call()
    else:
        _calls_at_start.append(call)


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def _get_device_index(device: Device | Any = None, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that `device` names: the current device's where it names none and `optional` is set."""
    if isinstance(device, int) and not isinstance(device, bool):
        if not -128 <= device < 128:  # PyTorch keeps an index in 8 bits
            raise ValueError(f"neuron device index must be in [0, {device_count() - 1}], but got {device}")
        return device
    if device is None:
        index = None
    else:
        device = torch.device(device)
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "neuron":
            raise ValueError(f"Expected a neuron device, but got: {device}")
        index = device.index
    if index is not None:
        return index
    if not optional:
        raise ValueError(f"Expected a neuron device with a specified index or an integer, but got: {device}")
    return _C.current_device()


def current_device() -> int:
    """The index of the calling thread's device; it starts at LOCAL_RANK, counted among the visible cores."""
    if torch.compiler.is_compiling():
        return torch.accelerator.current_device_index()  # Dynamo knows this function, and stays in the graph
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make `device` the calling thread's; a negative index changes nothing. Raises ValueError if it is not there."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _C.set_device(index)


class device:
    """Context manager: `device` is the current device within. None or a negative index changes nothing."""

    def __init__(self, device: Device | Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            _C.exchange_device(self.prev_idx)


class device_of(device):
    """Context manager: the device of a tensor or storage is the current one within; the CPU's changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "neuron" else -1)


def synchronize(device: Device = None) -> None:
    """Wait for all work queued on all streams of `device`, and raise its first error if there was one."""
    if torch.compiler.is_compiling():
        # As above.
        if device is None:
            torch.accelerator.synchronize()
        else:
            torch.accelerator.synchronize(device)
        return
    _C.synchronize_device(_get_device_index(device, optional=True))


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Find what makes the host wait: "default" (0), or "warn" (1) or "error" (2) at each such call.

    Those are copies to the host, `.item()`, the operators of `get_fallback_ops()` and `Stream.synchronize()`; not
    `torch.neuron.synchronize()` and `Event.synchronize()`, whose purpose is to wait.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of {_SYNC_DEBUG_MODES}, but got {debug_mode!r}"
            )
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if not 0 <= debug_mode < len(_SYNC_DEBUG_MODES):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1 or 2, but got {debug_mode}")
    _C.set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """What `set_sync_debug_mode` set, as a number."""
    return _C.sync_debug_mode()


@functools.cache
def _properties(index: int) -> NeuronDeviceProperties:
    _C.check_device_index(index)
    core_index, chip_index, hbm_bytes = _C.cores()[index]
    chip = _chip()
    return NeuronDeviceProperties(
        name=chip.name,
        major=chip.core.version,
        minor=0,
        total_memory=hbm_bytes,
        multi_processor_count=_C.lnc(),
        instance=_C.instance_name(),
        chip_index=chip_index,
        core_index=core_index,
    )


def _chip() -> Chip:
    return INSTANCES[_C.instance_name()].chip


@_constant
def get_device_properties(device: Device = None) -> NeuronDeviceProperties:
    """The properties of `device` (default: the current one)."""
    return _properties(_get_device_index(device, optional=True))


@_constant
def get_device_name(device: Device = None) -> str:
    """For example "neuron:0 (trn2, emulated)". The chip alone is `get_device_properties(device).name`."""
    index = _get_device_index(device, optional=True)
    return f"neuron:{index} ({_properties(index).name}, emulated)"


@_constant
def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(version of the NeuronCore, 0): (2, 0) for trn1 and inf2, (3, 0) for trn2, (4, 0) for trn3."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """The chips that can be emulated."""
    return list(CHIPS)


def get_gencode_flags() -> str:
    """Empty: nothing is compiled ahead of time for a chip."""
    return ""


def can_device_access_peer(device: Device, peer: Device) -> bool:
    """Whether a copy goes from one device to the other without a stop in host memory: yes between any two."""
    a, b = _get_device_index(device, optional=True), _get_device_index(peer, optional=True)
    _properties(a), _properties(b)
    return a != b


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: TensorE multiplies bfloat16 at full rate on every chip."""
    return True


def is_tf32_supported() -> bool:
    """True of the chips, whose TensorE multiplies tf32; the emulation computes float32 as IEEE float32 all the same."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("neuron", dtype=...)` takes."""
    return [torch.bfloat16, torch.float16]


def clock_rate(device: Device = None) -> int:
    """The clock of the chip's TensorE in MHz."""
    get_device_properties(device)
    return round(_chip().core.tensor_clock / 1e6)


def _no_sensor(what: str) -> NoReturn:
    raise NotImplementedError(f"an emulated NeuronCore has no {what}; on Trainium, neuron-monitor reports it")


def utilization(device: Device = None) -> float:
    """Raises NotImplementedError: the emulation has no counters of its engines' time."""
    _no_sensor("utilization counter")


def memory_usage(device: Device = None) -> float:
    """Raises NotImplementedError: the emulation has no counters of its memory's bandwidth."""
    _no_sensor("memory bandwidth counter")


def temperature(device: Device = None) -> float:
    """Raises NotImplementedError: the emulation has no temperature."""
    _no_sensor("temperature sensor")


def power_draw(device: Device = None) -> float:
    """Raises NotImplementedError: the emulation draws no power of its own."""
    _no_sensor("power sensor")
