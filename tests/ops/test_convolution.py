"""Convolutions of one to three dimensions: CPU's values, strides and gradients, twice, and its errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2, "padding": 2},
    "grouped": {"groups": 2, "padding": 1},
    "depthwise": {"groups": 4, "stride": 2, "padding": 1},
}


def make(dims: int, groups: int, transposed: bool, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(dims)
    sizes = [7, 6, 5][:dims]
    channels = (4, 8 // groups) if transposed else (8, 4 // groups)
    x = torch.randn(2, 4, *sizes, generator=generator)
    weight = torch.randn(*channels, *[3, 2, 3][:dims], generator=generator)
    bias = torch.randn(8, generator=generator)
    return x.to(dtype), weight.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_values_and_gradients(dims: int, transposed: bool, arguments: str) -> None:
    kwargs = ARGUMENTS[arguments]
    x, weight, bias = make(dims, kwargs.get("groups", 1), transposed)
    function = (TRANSPOSED if transposed else CONVOLUTIONS)[dims]
    compare(
        lambda x, w, b: with_gradients(lambda *a: function(*a, **kwargs), x, w, b),
        x,
        weight,
        bias,
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_gradients(dims: int, transposed: bool) -> None:
    function = (TRANSPOSED if transposed else CONVOLUTIONS)[dims]
    x, weight, bias = make(dims, 2, transposed, torch.float64)
    compare(
        lambda x, w, b: with_gradients(lambda *a: function(*a, stride=2, padding=1, groups=2), x, w, b, twice=True),
        x, weight, bias, rtol=1e-9, atol=1e-9, strides=False,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    x, weight, bias = make(2, 1, False, dtype)
    compare(lambda x, w, b: with_gradients(F.conv2d, x, w, b), x, weight, bias, rtol=1e-2, atol=1e-2)


def test_integers() -> None:
    x, weight = torch.arange(2 * 3 * 5 * 5).view(2, 3, 5, 5), torch.arange(4 * 3 * 3 * 3).view(4, 3, 3, 3)
    compare(lambda x, w: F.conv2d(x, w), x, weight)


@pytest.mark.parametrize("of_weight", [False, True])
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dims, transposed", itertools.product([2, 3], [False, True]))
def test_channels_last(dims: int, transposed: bool, dtype: torch.dtype, of_input: bool, of_weight: bool) -> None:
    x, weight, bias = make(dims, 1, transposed, dtype)
    if of_input:
        x = x.to(memory_format=CHANNELS_LAST[x.dim()])
    if of_weight:
        weight = weight.to(memory_format=CHANNELS_LAST[weight.dim()])
    function = (TRANSPOSED if transposed else CONVOLUTIONS)[dims]
    if transposed and dims == 2 and dtype == torch.float64 and (of_input or of_weight):
        compare(function, x, weight, bias)  # CPU raises in the backward function
    else:
        compare(lambda *a: with_gradients(function, *a), x, weight, bias, rtol=1e-5, atol=1e-5)


def test_non_contiguous_operands_P_79() -> None:
    """gh:pytorch/pytorch#162730, #192212: a permuted weight gave wrong values on another device."""
    x = torch.randn(6, 5, 2, 3).permute(2, 3, 0, 1)
    weight = torch.randn(3, 8, 3, 2).permute(1, 0, 2, 3)
    compare(lambda x, w: with_gradients(F.conv2d, x, w), x, weight, rtol=1e-5, atol=1e-5)
    x, weight = torch.randn(2, 9, 3).transpose(1, 2), torch.randn(3, 4, 8).permute(2, 1, 0)[:, ::2]
    compare(lambda x, w: with_gradients(F.conv1d, x, w[:, :1].expand(8, 3, 3)), x, weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unbatched_and_empty_batch(dims: int) -> None:
    x, weight, bias = make(dims, 1, False)
    compare(lambda *a: with_gradients(CONVOLUTIONS[dims], *a), x[0], weight, bias, rtol=1e-5, atol=1e-5)
    compare(lambda *a: with_gradients(CONVOLUTIONS[dims], *a), x[:0], weight, bias)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_named_padding(padding: str) -> None:
    x, weight, bias = make(2, 1, False)
    compare(
        lambda *a: with_gradients(lambda *b: F.conv2d(*b, padding=padding), *a), x, weight, bias, rtol=1e-5, atol=1e-5
    )


def test_output_padding() -> None:
    x, weight, bias = make(2, 1, True)
    compare(
        lambda *a: with_gradients(lambda *b: F.conv_transpose2d(*b, stride=3, output_padding=(2, 1)), *a),
        x, weight, bias, rtol=1e-5, atol=1e-5,
    )  # fmt: skip


def test_forward_mode_and_vmap() -> None:
    x, weight, bias = make(2, 1, False)
    assert_same(
        torch.func.jvp(lambda x: F.conv2d(x, weight.to(DEVICE)), (x.to(DEVICE),), (x.to(DEVICE).cos(),)),
        torch.func.jvp(lambda x: F.conv2d(x, weight), (x,), (x.cos(),)),
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    xs = torch.stack([x, x.sin()])
    compare(
        lambda xs, w, b: torch.func.vmap(lambda x: F.conv2d(x, w, b))(xs), xs, weight, bias, rtol=1e-5, atol=1e-5,
        strides=False,
    )  # fmt: skip


def test_complex() -> None:
    x, weight = torch.randn(1, 2, 5, 5, dtype=torch.complex64), torch.randn(3, 2, 3, 3, dtype=torch.complex64)
    compare(lambda x, w: F.conv2d(x, w), x, weight, rtol=1e-5, atol=1e-5)


def test_modules_train_with_launches_only() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.ConvTranspose2d(8, 4, 2, stride=2)
    ).to(DEVICE)
    x = torch.randn(2, 3, 8, 8).to(DEVICE)
    with launches_only():
        model(x).sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.conv2d(x[:, :3], w, b),
        lambda x, w, b: F.conv2d(x, w, b[:3]),
        lambda x, w, b: F.conv2d(x, w, b, stride=0),
        lambda x, w, b: F.conv2d(x, w, b, padding=-1),
        lambda x, w, b: F.conv2d(x, w, b, dilation=0),
        lambda x, w, b: F.conv2d(x, w, b, groups=3),
        lambda x, w, b: F.conv2d(x, w, b, groups=0),
        lambda x, w, b: F.conv2d(x[:, :, :2], w, b),
        lambda x, w, b: F.conv2d(x, w.double(), b),
        lambda x, w, b: F.conv2d(x, w, b.double()),
        lambda x, w, b: F.conv2d(x, w[0], b),
        lambda x, w, b: F.conv2d(x, w, b, stride=(1, 1, 1)),
        lambda x, w, b: torch.convolution(x, w, b, [1], [0], [1], True, [1], 1),
        lambda x, w, b: torch.ops.aten.convolution_backward(
            x, x, w, [8], [1], [0], [1], False, [0], 1, [True, True, True]
        ),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, *make(2, 1, False))


def test_operands_on_two_devices() -> None:
    x, weight, bias = make(2, 1, False)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.conv2d(x.to(DEVICE), weight)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.conv2d(x.to(DEVICE), weight.to(DEVICE), bias)
