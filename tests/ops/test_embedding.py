"""Embedding tables and bags: CPU's values, gradients and errors, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

WEIGHT = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
INDICES = torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    "indices",
    [INDICES, INDICES[0], INDICES[0, 0], INDICES[:, :0], INDICES.t(), INDICES[:, ::2], INDICES.view(2, 2, 2)],
    ids=lambda i: f"{tuple(i.shape)}:{i.stride()}",
)  # fmt: skip
def test_values_and_gradients(indices: Tensor, index_dtype: torch.dtype, dtype: torch.dtype) -> None:
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w), w), WEIGHT.to(dtype), indices.to(index_dtype))


def test_options() -> None:
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w, padding_idx=4), w), WEIGHT, INDICES)
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w, padding_idx=-1), w), WEIGHT, INDICES)
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w, scale_grad_by_freq=True), w), WEIGHT, INDICES)
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w.t()), w), WEIGHT, INDICES % 4)
    compare(lambda w, i: F.embedding(i, w), torch.arange(20).view(10, 2), INDICES)
    compare(lambda w, i: F.embedding(i, w), WEIGHT > 0, INDICES)
    compare(
        lambda w, i: with_gradients(lambda w: F.embedding(i, w), w, twice=True), WEIGHT.double(), INDICES,
        strides=False,
    )  # fmt: skip


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_max_norm_changes_the_table(norm_type: float) -> None:
    def function(weight: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        table = weight.clone()
        return F.embedding(indices, table, max_norm=0.7, norm_type=norm_type), table

    compare(function, WEIGHT, INDICES, rtol=1e-6, atol=1e-7)


def test_many_rows_in_threads() -> None:
    indices = torch.randint(0, 50, (5000,), generator=torch.Generator().manual_seed(1))
    weight = torch.randn(50, 64)
    compare(lambda w, i: with_gradients(lambda w: F.embedding(i, w), w), weight, indices, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str, dtype: torch.dtype) -> None:
    offsets = torch.tensor([0, 3, 3])

    def check(**kwargs: Any) -> None:
        compare(
            lambda w, i, o: with_gradients(lambda w: F.embedding_bag(i, w, o, mode=mode, **kwargs), w),
            WEIGHT.to(dtype), INDICES.view(-1), kwargs.pop("offsets", offsets), rtol=1e-2, atol=1e-3,
        )  # fmt: skip

    check()
    check(padding_idx=4)
    check(include_last_offset=True, offsets=torch.tensor([0, 3, 8]))
    if mode != "max":
        check(scale_grad_by_freq=True)
    compare(
        lambda w, i: with_gradients(lambda w: F.embedding_bag(i, w, mode=mode), w), WEIGHT.to(dtype), INDICES,
        rtol=1e-2, atol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_weighted_bags(dtype: torch.dtype) -> None:
    weights = torch.rand(8, generator=torch.Generator().manual_seed(2)).to(dtype)
    offsets = torch.tensor([0, 3])

    def check(**kwargs: Any) -> None:
        def function(w: Tensor, i: Tensor, o: Tensor, p: Tensor) -> Any:
            bags = lambda w, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p, **kwargs)  # noqa: E731
            return with_gradients(bags, w, p)

        compare(function, WEIGHT.to(dtype), INDICES.view(-1), offsets, weights, rtol=1e-2, atol=1e-3)

    check()
    check(padding_idx=4)


@pytest.mark.parametrize("name", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bag_operators_return_what_cpu_returns(mode: int, name: str) -> None:
    operator = getattr(torch.ops.aten, name)
    for padding in (-1, 2):
        for dtype in (torch.float32, torch.float64):
            for last in (False, True):
                compare(
                    lambda w, i, o, last=last, p=padding: operator(w, i, o, False, mode, False, None, last, p),
                    WEIGHT.to(dtype), INDICES.view(-1), torch.tensor([0, 3, 8][: 2 + last]), rtol=1e-5, atol=1e-6,
                )  # fmt: skip


def test_modules_train_with_launches_only() -> None:
    table, bag = torch.nn.Embedding(10, 4, max_norm=1.0).to(DEVICE), torch.nn.EmbeddingBag(10, 4).to(DEVICE)
    indices = INDICES.to(DEVICE)
    with launches_only():
        (table(indices).sum() + bag(indices).sum()).backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda w, i: F.embedding(i + 9, w),
        lambda w, i: F.embedding(i - 5, w),
        lambda w, i: F.embedding(i.float(), w),
        lambda w, i: F.embedding(i.byte(), w),
        lambda w, i: torch.embedding(w[0], i),
        lambda w, i: torch.embedding(w[None], i),
        lambda w, i: F.embedding(i, w, padding_idx=10),
        lambda w, i: torch.embedding_renorm_(w, i.float(), 1.0, 2.0),
        lambda w, i: torch.embedding_renorm_(w[None], i, 1.0, 2.0),
        lambda w, i: torch.ops.aten.embedding_dense_backward(w, i, 10, -1, False),
        lambda w, i: torch.ops.aten.embedding_dense_backward(w[:8].view(2, 4, 4), i.float(), 10, -1, False),
        lambda w, i: F.embedding_bag(i.view(-1), w, i[0]),
        lambda w, i: F.embedding_bag(i.view(-1), w[None], i[0, :0]),
        lambda w, i: F.embedding_bag(i.view(-1) + 9, w, i[0, :1] - 1),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, WEIGHT, INDICES)


def test_operands_on_two_devices() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.embedding(INDICES, WEIGHT.to(DEVICE))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.embedding(INDICES.to(DEVICE), WEIGHT)
