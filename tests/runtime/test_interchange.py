"""Tensors of the device handed to other libraries, and taken from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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


def test_dlpack_names_a_device_that_is_not_the_cpu() -> None:
    kind, index = torch.ones(1, device="neuron:1").__dlpack_device__()
    assert (int(kind), index) == (12, 1)  # kDLExtDev
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(torch.ones(1, device=DEVICE))


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
