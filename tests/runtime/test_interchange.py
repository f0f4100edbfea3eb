"""Tensors of the device handed to other libraries, and taken from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

DEVICE = "neuron"


def test_dlpack_shares_the_memory() -> None:
    x = torch.arange(6.0, device="neuron:1").view(2, 3).t()
    by_capsule = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    by_protocol = torch.from_dlpack(x)
    for y in (by_capsule, by_protocol):
        assert (y.device, y.dtype, y.shape, y.stride()) == (x.device, x.dtype, x.shape, x.stride())
        assert y.data_ptr() == x.data_ptr()
    by_protocol[0, 0] = 9
    assert x[0, 0].item() == by_capsule[0, 0].item() == 9
    del x, by_capsule
    assert by_protocol.tolist() == [[9, 3], [1, 4], [2, 5]]


def test_dlpack_copies_where_it_is_asked_to() -> None:
    x = torch.arange(6.0, device="neuron:1").view(2, 3).t()
    for y in (
        torch.from_dlpack(x, copy=True),
        torch.from_dlpack(x, device="neuron:0"),
        torch.from_dlpack(x, device="cpu"),
        torch.from_dlpack(x.cpu(), device="neuron:1"),
        torch.from_dlpack(x.cpu().numpy(), device=DEVICE),
    ):
        assert y.data_ptr() != x.data_ptr() and y.tolist() == x.tolist()
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    assert torch.from_dlpack(x, device="neuron:1", copy=False).data_ptr() == x.data_ptr()
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="cpu", copy=False)
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(torch.ones(2, device=DEVICE, requires_grad=True))


def test_dlpack_names_a_device_that_is_not_the_cpu() -> None:
    class Subclass(torch.Tensor):
        pass

    x = torch.ones(1, device="neuron:1")
    for tensor in (x, x.as_subclass(Subclass)):
        kind, index = tensor.__dlpack_device__()
        assert (int(kind), index) == (12, 1)  # kDLExtDev
    assert torch.ones(1).__dlpack_device__() == (1, 0)
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(x)
    assert np.from_dlpack(x, device="cpu").tolist() == [1]


def test_dlpack_asks_those_that_override_functions() -> None:
    asked = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        torch.ones(1, device=DEVICE).__dlpack_device__()
    assert torch.Tensor.__dlpack_device__ in asked


def test_numpy_needs_a_copy_to_the_host() -> None:
    x = torch.arange(3.0, device=DEVICE)
    with pytest.raises(TypeError, match=r"can't convert neuron:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match=r"can't convert neuron:0 device type tensor to numpy"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [0, 1, 2]


def test_from_numpy_and_from_lists_of_tensors() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    for made in (
        torch.as_tensor(array, device=DEVICE),
        torch.tensor(array, device=DEVICE),
        torch.asarray(array, device=DEVICE),
    ):
        assert made.device.type == DEVICE and made.dtype == torch.int64 and made.tolist() == array.tolist()
    array[0, 0] = 100
    assert torch.tensor([torch.tensor(1.0, device=DEVICE), 2.0], device=DEVICE).tolist() == [1, 2]
    assert torch.tensor(torch.ones(2), device=DEVICE).device.type == DEVICE


def test_python_numbers() -> None:
    x = torch.tensor(3, device=DEVICE)
    assert (int(x), float(x), bool(x), complex(x), [0, 1, 2, 3][x], f"{x:d}") == (3, 3.0, True, 3 + 0j, 3, "3")
    assert list(torch.arange(3, device=DEVICE)) == [0, 1, 2]
    assert torch.tensor([1.5, 2.5], device=DEVICE).tolist() == [1.5, 2.5]
    assert 2 in torch.arange(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.ones(2, device=DEVICE))
