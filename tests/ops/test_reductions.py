"""Reductions that are not structured in ATen, beside those that are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, compare, compare_errors, launches_only

X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1))

FUNCTIONS: list[Callable[..., Any]] = [
    lambda x: x.std(),
    lambda x: x.var(),
    lambda x: x.std(1),
    lambda x: x.var((0, 2), keepdim=True),
    lambda x: x.var(-1, correction=0),
    lambda x: x.std(1, unbiased=False),
    lambda x: torch.std_mean(x, 1),
    lambda x: torch.var_mean(x, (0, 1), correction=2, keepdim=True),
    lambda x: torch.var(x, 0, out=torch.empty(0, dtype=x.dtype, device=x.device)),
    lambda x: x.transpose(0, 2).std(0),
    lambda x: x.prod(),
    lambda x: x.prod(1),
    lambda x: x.prod(dtype=torch.float64),
    lambda x: x.max(),
    lambda x: x.min(),
    lambda x: torch.max(x, out=x.new_empty(())),
    lambda x: x.max(1),
    lambda x: x.aminmax(),
    lambda x: x.nansum(),
    lambda x: x.nansum(1, keepdim=True),
    lambda x: torch.nansum(x, 0, out=x.new_empty(0)),
    lambda x: x.nanmean(1),
    lambda x: (x > 0).count_nonzero(),
    lambda x: (x > 0).count_nonzero(1),
    lambda x: x.count_nonzero((0, 2)),
    lambda x: x[0].trace(),
    lambda x: x[0, 0].dot(x[1, 1]),
    lambda x: torch.vdot(x[0, 0], x[1, 1]),
    lambda x: x.histc(8, -2, 2),
    lambda x: x.histc(8),
    lambda x: torch.histc(x, 5, out=x.new_empty(0)),
    lambda x: x.logcumsumexp(1),
    lambda x: x.logsumexp((0, 1)),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(-1),
    lambda x: x.norm(),
    lambda x: x.norm(1, 1),
    lambda x: torch.linalg.vector_norm(x, 3, (0, 1)),
    lambda x: x.mean((0, 1)),
    lambda x: x.sum(),
    lambda x: x.any(1),
    lambda x: x.argmax(),
    lambda x: x.square().mean().sqrt(),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values(function: Callable[..., Any], dtype: torch.dtype) -> None:
    x = X.to(dtype)
    try:
        function(x)
    except RuntimeError:
        compare_errors(function, x)
    else:
        compare(function, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.prod(),
        lambda x: x.max(),
        lambda x: x.nansum(),
        lambda x: x.count_nonzero(),
        lambda x: x[0].trace(),
        lambda x: x[0, 0].dot(x[1, 1]),
        lambda x: x.bool().prod(),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers(function: Callable[..., Any], dtype: torch.dtype) -> None:
    compare(function, (X * 3).to(dtype))


def test_complex() -> None:
    z = torch.view_as_complex(X.view(4, 5, 3, 2).contiguous())
    compare(lambda z: (z.var(), z.std(1), z.prod(), z[0].trace(), torch.vdot(z[0, 0], z[1, 1])), z)
    compare(lambda z: torch.var_mean(z, 1), z)


def test_large_inputs_use_all_threads_and_give_the_same() -> None:
    compare(lambda x: (x.std(1), x.var(0), torch.var_mean(x), x.prod(0), x.max(), x.norm()), torch.randn(300, 2000))


@pytest.mark.parametrize(
    "function", [lambda x: x.std(), lambda x: torch.var_mean(x, 0), lambda x: x.var(0, correction=3)]
)
def test_too_few_degrees_of_freedom_warn_at_the_call(function: Callable[..., Any]) -> None:
    x = torch.ones(1)
    with pytest.warns(UserWarning, match="degrees of freedom") as expected:
        function(x)
    with pytest.warns(UserWarning, match="degrees of freedom") as actual:
        function(x.to(DEVICE))
    assert str(actual[0].message).split(" (Triggered")[0] == str(expected[0].message).split(" (Triggered")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(function, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.long().std(),
        lambda x: x.std(9),
        lambda x: x.std((0, 0)),
        lambda x: x[:0].max(),
        lambda x: x.to(torch.complex64).max(),
        lambda x: x.trace(),
        lambda x: x[0].dot(x[0, 0]),
        lambda x: x[0, 0].dot(x[0, 0, :2]),
        lambda x: x[0, 0].dot(x[0, 0].double()),
        lambda x: x.histc(0),
        lambda x: x.histc(4, 3, 1),
        lambda x: (x / 0).histc(4),
        lambda x: x.to(torch.complex64).nansum(),
        lambda x: x.logcumsumexp(7),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[..., Any]) -> None:
    compare_errors(function, X)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_histograms_of_integers(dtype: torch.dtype) -> None:
    """As on CUDA; the CPU refuses them."""
    x = torch.tensor([3, 0, 1, 1, 6, 3, 9, 3], dtype=dtype, device=DEVICE)
    with launches_only():
        found = [
            torch.histc(x, 10, 0, 9),
            torch.histc(x, 10, 0, 10),
            torch.histc(x, 2, 1, 6),
            torch.histc(x, 3),
            torch.histc(x[:1] + 4, 2),
            torch.histc(x[:0], 2),
        ]
    assert [counts.tolist() for counts in found] == [
        [1, 2, 0, 3, 0, 0, 1, 0, 0, 1],
        [1, 2, 0, 3, 0, 0, 1, 0, 0, 1],
        [5, 1],
        [3, 3, 2],
        [0, 1],
        [0, 0],
    ]
    assert all(counts.dtype == dtype for counts in found)
