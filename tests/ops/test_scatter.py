"""gather and the scatter family, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import compare
from torch import Tensor

SOURCE = torch.arange(60, dtype=torch.float32).view(3, 4, 5)
INDEX = torch.randint(0, 3, (3, 4, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: x.gather(-1, i[:, :2]),
        lambda x, i: x.transpose(0, 2).contiguous().transpose(0, 2).gather(0, i),
        lambda x, i: torch.take_along_dim(x, i, 1),
        lambda x, i: x.scatter(1, i[:, :1], x.flip(0)),
        lambda x, i: x.scatter_(2, i[:, :, :1], 7.0),
        lambda x, i: x.scatter(0, i[:1], -1),
        lambda x, i: x.scatter_add(0, i, torch.ones_like(x)),
        lambda x, i: x.scatter_add_(1, i, x.flip(1)),
        lambda x, i: x.scatter_reduce(0, i, x * 2, "sum"),
        lambda x, i: x.scatter_reduce(0, i, x * 2, "mean", include_self=False),
        lambda x, i: x.scatter_reduce_(1, i, x * 2, "amax"),
        lambda x, i: x.scatter_reduce(1, i, x * 2, "prod"),
        lambda x, i: x.scatter(0, i[:1], 2.0, reduce="multiply"),
        lambda x, i: x.diagonal_scatter(torch.ones(5, 3, device=x.device), 0, 0, 1),
        lambda x, i: x.select_scatter(torch.ones(3, 5, device=x.device), 1, 2),
        lambda x, i: x.slice_scatter(torch.ones(3, 2, 5, device=x.device), 1, 1, 3),
        lambda x, i: torch.nn.functional.one_hot(i[0], 3),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_values(function: Callable[..., Any], dtype: torch.dtype) -> None:
    compare(function, SOURCE.to(dtype), INDEX, waits=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: x.scatter_add(0, i, torch.ones_like(x)),
        lambda x, i: x.scatter_reduce(0, i, x * 2, "amax"),
        lambda x, i: x.slice_scatter(torch.ones(3, 2, 5, device=x.device), 1, 1, 3),
    ],
)
def test_no_waiting(function: Callable[..., Any]) -> None:
    compare(function, SOURCE, INDEX)


def test_gradients() -> None:
    def gradients(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        x = x.detach().requires_grad_()
        y = (
            x.gather(1, i).pow(2).sum()
            + x.scatter_add(0, i, x * 3).sum()
            + x.select(1, 2).sum()
            + x[:, 1:3].pow(3).sum()
        )
        return torch.autograd.grad(y, x)

    compare(gradients, SOURCE / 30, INDEX, rtol=1e-6)
