"""Pooling: CPU's values, strides, gradients and errors, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}

POOLS: dict[str, tuple[int, Callable[..., Any]]] = {
    "avg1": (1, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "avg2": (2, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
    "avg3": (3, lambda x: F.avg_pool3d(x, 2, 1)),
    "max1": (1, lambda x: F.max_pool1d(x, 3, 2, 1)),
    "max2": (2, lambda x: F.max_pool2d(x, 3, 2, 1, dilation=1)),
    "max3": (3, lambda x: F.max_pool3d(x, 2, 2, 1)),
    "max3_uneven": (3, lambda x: F.max_pool3d(x, (3, 2, 1), (1, 2, 1), (1, 0, 0), ceil_mode=True)),
    "max3_dilated": (3, lambda x: F.max_pool3d(x, 2, 1, 0, dilation=2)),
    "max3_indices": (3, lambda x: F.max_pool3d(x, 2, return_indices=True)),
    "lp2": (2, lambda x: F.lp_pool2d(x, 2.0, 2)),
    "adaptive_avg1": (1, lambda x: F.adaptive_avg_pool1d(x, 3)),
    "adaptive_avg2": (2, lambda x: F.adaptive_avg_pool2d(x, (3, 2))),
    "adaptive_avg2_one": (2, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive_avg2_up": (2, lambda x: F.adaptive_avg_pool2d(x, (None, 11))),
    "adaptive_avg3": (3, lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2))),
    "adaptive_avg3_one": (3, lambda x: F.adaptive_avg_pool3d(x, 1)),
    "adaptive_max1": (1, lambda x: F.adaptive_max_pool1d(x, 3)),
    "adaptive_max2": (2, lambda x: F.adaptive_max_pool2d(x, (3, 2))),
    "adaptive_max3": (3, lambda x: F.adaptive_max_pool3d(x, (3, 2, 2))),
    "unpool1": (1, lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2, output_size=x.shape[-1:])),
    "unpool2": (2, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[-2:])),
    "unpool3": (3, lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2, output_size=x.shape[-3:])),
}


def image(dims: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(dims)
    return torch.randn(2, 3, *[8, 7, 6][:dims], generator=generator).to(dtype)


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-6, **kwargs: Any) -> None:
    compare(lambda *a: with_gradients(function, *a), *inputs, rtol=tolerance, atol=tolerance, **kwargs)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", POOLS)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    dims, function = POOLS[name]
    if name == "avg3" and dtype.itemsize == 2:
        compare_errors(function, image(dims, dtype))
    else:
        check(function, image(dims, dtype), tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("name", POOLS)
def test_unbatched_and_strided(name: str) -> None:
    dims, function = POOLS[name]
    x = image(dims)
    check(function, x[0])
    check(lambda x: function(x.transpose(0, 1)), x)
    check(lambda x: function(x[..., ::2].repeat_interleave(2, -1)), x)
    if dims > 1:
        check(function, x.to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d))


@pytest.mark.parametrize("name", ["adaptive_avg2", "adaptive_avg3", "max3", "avg2"])
def test_empty_batch_and_second_derivatives(name: str) -> None:
    dims, function = POOLS[name]
    check(function, image(dims)[:0])
    compare(
        lambda x: with_gradients(function, x, twice=True), image(dims, torch.float64), rtol=1e-10, atol=1e-10,
        strides=False,
    )  # fmt: skip


def test_pools_run_with_launches_only() -> None:
    with launches_only():
        for dims, function in POOLS.values():
            x = image(dims).to(DEVICE).requires_grad_()
            out = function(x)
            (out[0] if isinstance(out, tuple) else out).sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[:, :, 0], [2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[:, :, 0, :, :0], [2, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[:, :, 0], [-1, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[0, 0, 0], [2, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[:, :, 0].long(), [2, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool3d(x[0, 0], [2, 2, 2]),
        lambda x: F.max_pool3d(x, 2, padding=2),
        lambda x: F.max_pool3d(x, 9),
        lambda x: F.max_pool3d(x, 2, stride=0),
        lambda x: F.max_pool3d(x[:, :, 0, 0, 0], 2),
        lambda x: F.max_pool3d(x[:, :, 0].to(memory_format=torch.channels_last), 2),
        lambda x: F.max_unpool2d(x[:, :, 0], x[:, :1, 0].long(), 2),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, image(3))
