"""Random numbers on `neuron`: one Philox4x32-10 generator per device, with a state of 16 bytes."""

from collections.abc import Iterable

import torch

from .. import _C
from .devices import Device, _get_device_index

_generators: tuple[torch.Generator, ...] = ()


def default_generators() -> tuple[torch.Generator, ...]:
    """The devices' default generators; `torch.neuron.default_generators` is this tuple. Does not start the device."""
    global _generators
    if len(_generators) != _C.device_count_or_zero():
        _generators = tuple(_C.default_generator(index) for index in range(_C.device_count_or_zero()))
    return _generators


def _get_generator(device: torch.device) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: Device = "neuron") -> torch.Tensor:
    """The generator's state: a uint8 tensor of 16 bytes on the CPU, the seed (uint64) and the offset (int64)."""
    return _C.default_generator(_get_device_index(device, optional=True)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = "neuron") -> None:
    """Set the state of `device`'s generator; see `get_rng_state`. Eight bytes are taken as a seed with offset 0."""
    _C.default_generator(_get_device_index(device, optional=True)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' generators, in the order of `get_rng_state_all`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator, if there is a device.

    `torch.manual_seed` seeds those of all devices.
    """
    if _C.device_count_or_zero() == 0:
        return
    _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's generator from the system's entropy, and return the seed."""
    return _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seed the generators of all devices, if there are any, with one number from the system's entropy."""
    if _C.device_count_or_zero() > 0:
        manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _C.default_generator(_C.current_device()).initial_seed()


def _get_rng_state_offset(device: Device = "neuron") -> int:
    return _C.default_generator(_get_device_index(device, optional=True)).get_offset()


def _set_rng_state_offset(offset: int, device: Device = "neuron") -> None:
    _C.default_generator(_get_device_index(device, optional=True)).set_offset(offset)


class match_cpu_random:
    """Draw with the CPU's own algorithm from the CPU's generator, so that a run gives the numbers of one on the CPU.

    Takes effect at once, for the whole process; as a context manager it restores what was set before:

        torch.neuron.match_cpu_random()
        with torch.neuron.match_cpu_random(): ...
    """

    def __init__(self, enabled: bool = True) -> None:
        self._before = _C.match_cpu_random()
        _C.set_match_cpu_random(enabled)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _C.set_match_cpu_random(self._before)
