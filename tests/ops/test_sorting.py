"""Sorting, order statistics and searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import compare, compare_errors

X = torch.randint(0, 9, (5, 6, 7), generator=torch.Generator().manual_seed(3)).float()
WITH_NAN = X.where(X != 4, float("nan"))

FUNCTIONS: list[Callable[..., Any]] = [
    lambda x: x.sort(-1),
    lambda x: x.sort(0, descending=True),
    lambda x: torch.sort(x, stable=True, dim=1),
    lambda x: x.argsort(dim=1, stable=True),
    lambda x: x.msort(),
    lambda x: x.transpose(0, 2).sort(dim=0, stable=True),
    lambda x: x.flatten().unique_consecutive().topk(3).values,
    lambda x: x.topk(3, 1).values,
    lambda x: x.topk(2, 0, largest=False).values,
    lambda x: x.kthvalue(3, 1),
    lambda x: x.kthvalue(2, 0, keepdim=True),
    lambda x: x.median(),
    lambda x: x.median(1),
    lambda x: x.median(-1, keepdim=True),
    lambda x: x.nanmedian(),
    lambda x: x.nanmedian(0),
    lambda x: x.mode(1),
    lambda x: x.mode(0, keepdim=True),
    lambda x: x[0, 0, 0].median(0),
    lambda x: x[0, 0, 0].mode(0),
    lambda x: x[:0].median(),
    lambda x: x.cummax(1),
    lambda x: x.cummin(0),
    lambda x: x.unique(),
    lambda x: x.unique(return_inverse=True, return_counts=True),
    lambda x: x.unique(dim=1),
    lambda x: x.unique_consecutive(dim=0),
    lambda x: torch.isin(x, torch.tensor([1.0, 2.0], device=x.device)),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_values(function: Callable[..., Any], dtype: torch.dtype) -> None:
    compare(function, X.to(dtype), waits=True)


@pytest.mark.parametrize("function", FUNCTIONS[9:18])
def test_values_with_nan(function: Callable[..., Any]) -> None:
    compare(function, WITH_NAN)


@pytest.mark.parametrize("function", FUNCTIONS[:6] + FUNCTIONS[7:23])
def test_no_waiting(function: Callable[..., Any]) -> None:
    compare(function, X)


@pytest.mark.parametrize("out_int32", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_searches(out_int32: bool, right: bool, dtype: torch.dtype) -> None:
    edges = torch.tensor([1, 3, 5, 7]).to(dtype)
    rows = torch.sort(X[:, 0], -1).values.to(dtype)
    values = X.to(dtype)
    compare(lambda v, b: torch.bucketize(v, b, out_int32=out_int32, right=right), values, edges)
    compare(lambda v, s: torch.searchsorted(s, v, out_int32=out_int32, right=right), values, edges)
    compare(lambda v, s: torch.searchsorted(s, v, out_int32=out_int32, right=right), values[:, 1], rows)
    compare(lambda v, s: torch.searchsorted(s, v, side="right"), values, edges)
    unsorted = torch.tensor([5, 1, 7, 3]).to(dtype)
    compare(lambda v, s, o: torch.searchsorted(s, v, sorter=o), values, unsorted, unsorted.argsort())
    compare(lambda v, b: torch.bucketize(v[0, 0, 0], b), values, edges)
    compare(lambda v, s: torch.searchsorted(s, v.double()), values, edges)
    compare(lambda v, b: torch.bucketize(v.long(), b, right=right), values, edges)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.kthvalue(0, 1),
        lambda x: x.kthvalue(9, 1),
        lambda x: x.median(7),
        lambda x: x[:, :0].median(1),
        lambda x: x[:, :0].mode(1),
        lambda x: x.to(torch.complex64).median(),
        lambda x: torch.searchsorted(x, x[0]),
        lambda x: torch.bucketize(x, x),
        lambda x: torch.searchsorted(x[0, 0], x, right=True, side="left"),
        lambda x: torch.searchsorted(x[0, 0], x, side="up"),
        lambda x: x.topk(100),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[..., Any]) -> None:
    compare_errors(function, X)
