"""Elementwise operators that are not structured in ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import compare, compare_errors

A = torch.tensor([[-3.5, -1.0, 0.0, 2.0], [float("nan"), float("inf"), -float("inf"), 7.25]])
B = torch.tensor([[2.0, -3.0, 1.5, 0.5], [1.0, 2.0, -2.0, 0.25]])
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

UNARY: list[Callable[..., Any]] = [
    lambda a: a.abs(),
    lambda a: a.abs_(),
    lambda a: torch.abs(a, out=a.new_empty(0)),
    lambda a: a.t().abs(),
    lambda a: a[:, ::2].abs(),
    lambda a: a.relu(),
    lambda a: a.relu_(),
    lambda a: a.isnan(),
    lambda a: a.isfinite(),
    lambda a: a.isinf(),
    lambda a: a.logical_not(),
    lambda a: a.logical_not_(),
    lambda a: torch.logical_not(a, out=torch.empty(0, dtype=torch.uint8, device=a.device)),
    lambda a: a.nan_to_num(),
    lambda a: a.nan_to_num(1.0, 2.0, -3.0),
    lambda a: a.nan_to_num_(1.0),
    lambda a: torch.nan_to_num(a, out=torch.empty_like(a)),
    lambda a: a.t().nan_to_num(),
    lambda a: a.where(a > 0, 0),
    lambda a: a.where(a > 0, 1.5),
    lambda a: 3 - a,
    lambda a: a[:0].abs(),
    lambda a: a[0, 0].logical_not(),
]
BINARY: list[Callable[..., Any]] = [
    lambda a, b: torch.logical_and(a, b),
    lambda a, b: torch.logical_or(a, b[0]),
    lambda a, b: torch.logical_xor(a.t(), b.t()),
    lambda a, b: a.logical_and_(b),
    lambda a, b: torch.logical_or(a, b, out=torch.empty(0, device=a.device)),
    lambda a, b: torch.floor_divide(a, b),
    lambda a, b: a // 2,
    lambda a, b: a // 1.5,
    lambda a, b: a.floor_divide_(b),
    lambda a, b: torch.floor_divide(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
    lambda a, b: torch.rsub(a, b, alpha=2),
    lambda a, b: torch.where(a > 0, a, b),
    lambda a, b: torch.where((a > 0)[0], a, b.double()),
    lambda a, b: torch.where(a > 0, a.t().contiguous().t(), b),
    lambda a, b: torch.where(a > 0, a, torch.tensor(2.0)),
    lambda a, b: torch.where(a > 0, a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
    lambda a, b: torch.where(a.gt(0), 1, 2),
    lambda a, b: torch.where(a > 0, a[:1], b[:, :1]),
]


@pytest.mark.parametrize("function", UNARY)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
def test_unary(function: Callable[..., Any], dtype: torch.dtype) -> None:
    a = A if dtype.is_floating_point else A.nan_to_num(0, 3, 1).abs()
    try:
        function(a.to(dtype))
    except RuntimeError:
        compare_errors(function, a.to(dtype))
    else:
        compare(function, a.to(dtype))


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.bool])
def test_binary(function: Callable[..., Any], dtype: torch.dtype) -> None:
    a, b = (A, B) if dtype.is_floating_point else (A.nan_to_num(0, 3, 1), B.ceil())
    try:
        function(a.to(dtype), b.to(dtype))
    except RuntimeError:
        compare_errors(function, a.to(dtype), b.to(dtype))
    else:
        compare(function, a.to(dtype), b.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts(dtype: torch.dtype) -> None:
    a, b = torch.tensor([1, 5, 100]).to(dtype), torch.tensor([1, 2, 3]).to(dtype)
    compare(lambda a, b: (a << b, a >> b, a << 2, a >> 1), a, b)


def test_complex() -> None:
    z = torch.tensor([3 + 4j, -1j, 0], dtype=torch.complex64)
    compare(lambda z: (z.abs(), z.isnan(), z.logical_not(), torch.where(z.abs() > 1, z, 0)), z)
    compare(lambda z: torch.abs(z, out=torch.empty(0, device=z.device)), z)
    compare_errors(lambda z: z.abs_(), z)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.where(a, a, b),
        lambda a, b: torch.where(a > 0, a, b[:, :3]),
        lambda a, b: torch.where(a > 0, a, b, out=a.long()),
        lambda a, b: a.logical_and(b[:, :3]),
        lambda a, b: torch.nan_to_num(a, out=a.double()),
        lambda a, b: a.bool().relu(),
        lambda a, b: torch.rsub(a.bool(), b.bool()),
        lambda a, b: a.long() // (b.long() * 0),
        lambda a, b: a << b,
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[..., Any]) -> None:
    compare_errors(function, A, B)


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.where(torch.ones(3, device="neuron") > 0, torch.ones(3), torch.ones(3, device="neuron"))
