"""Fake tensors on `neuron`, which tracing and `torch.compile` use in the place of real ones."""

from typing import Any

import torch


def register() -> None:
    """Let a fake parameter move between `cpu` and `neuron` by `.data =`, as a real one does.

    Real tensors ask a kernel of this package whether that may be, but fake tensors take the operator apart instead.
    """
    operator = torch.ops.aten._has_compatible_shallow_copy_type.default
    decomposition = torch._C.DispatchKey.CompositeImplicitAutograd

    @operator.py_impl(decomposition)
    def has_compatible_shallow_copy_type(tensor: torch.Tensor, other: torch.Tensor) -> Any:
        devices = {tensor.device.type, other.device.type}
        if devices == {"cpu", "neuron"} and tensor.layout == other.layout == torch.strided:
            return True
        return operator._op_dk(decomposition, tensor, other)
