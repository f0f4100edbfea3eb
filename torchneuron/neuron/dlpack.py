"""Tensors on `neuron` in DLPack.

PyTorch exports and imports such tensors itself, but the method that names their device compares with a name that no
registered device has.
"""

import functools
from collections.abc import Callable
from enum import IntEnum

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

_DeviceOf = Callable[[torch.Tensor], tuple[IntEnum, int]]


def register() -> None:
    """Make `Tensor.__dlpack_device__` know `neuron`; every other device goes as before."""
    original = torch.Tensor.__dlpack_device__
    torch.Tensor.__dlpack_device__ = _knowing_neuron(original)  # type: ignore[assignment, method-assign]


def _knowing_neuron(of_other_devices: _DeviceOf) -> _DeviceOf:
    @functools.wraps(of_other_devices)
    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self):
            named: tuple[IntEnum, int] = handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
            return named
        if self.device.type == "neuron":
            return DLDeviceType.kDLExtDev, self.device.index
        return of_other_devices(self)

    return __dlpack_device__
