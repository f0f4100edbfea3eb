"""Operators that rearrange and pad, sequences of numbers, distances between rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import compare, compare_errors
from torch import Tensor

X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)

FUNCTIONS: list[Callable[..., Any]] = [
    lambda x: x.flip(0),
    lambda x: x.flip(1, -1),
    lambda x: x.transpose(0, 2).flip(1),
    lambda x: x[:, ::2].flip(0),
    lambda x: x.fliplr(),
    lambda x: x[0, 0, 0, 0].flip([]),
    lambda x: x.roll(1, 0),
    lambda x: x.roll((1, -2), (1, 3)),
    lambda x: x.roll(7),
    lambda x: x.transpose(1, 2).roll(-1, 1),
    lambda x: x[:0].roll(1, 0),
    lambda x: x.rot90(),
    lambda x: F.pad(x, (1, 2)),
    lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5),
    lambda x: F.pad(x, (1, -1, 0, 3)),
    lambda x: F.pad(x, (-1, -1)),
    lambda x: F.pad(x, (0, 0)),
    lambda x: F.pad(x, (0, 0, 1, 1, 2, 2, 3, 3), value=4),
    lambda x: F.pad(x.to(memory_format=torch.channels_last), (1, 1, 1, 1)),
    lambda x: x.repeat_interleave(2, 1),
    lambda x: torch.repeat_interleave(torch.tensor([1, 0, 3], device=x.device), output_size=4),
    lambda x: x.repeat_interleave(torch.tensor([1, 0, 3], device=x.device), 1, output_size=4),
    lambda x: x.repeat(1, 2, 1, 1),
    lambda x: x.tile(2),
    lambda x: torch.stack([x, x * 2], 1),
    lambda x: torch.cat([x, x * 2], -1),
    lambda x: torch.hstack([x, x]),
    lambda x: x.tril(),
    lambda x: x.triu(1),
    lambda x: x.diag_embed(),
    lambda x: F.pixel_shuffle(x.view(1, 4, 5, 6), 2),
    lambda x: F.pixel_unshuffle(x.view(1, 3, 4, 10), 2),
    lambda x: F.channel_shuffle(x.view(1, 4, 5, 6), 2),
    lambda x: x.unfold(3, 2, 1).sum(-1),
    lambda x: torch.cdist(x[0], x[1]),
    lambda x: torch.cdist(x[:, 0], x[:1, 1], p=1),
    lambda x: torch.cdist(x[0, 0], x[0, 1], p=float("inf")),
    lambda x: torch.cdist(x[0, 0], x[0, 1], compute_mode="donot_use_mm_for_euclid_dist"),
    lambda x: torch.cartesian_prod(x[0, 0, 0], x[0, 0, 1]),
    lambda x: torch.block_diag(x[0, 0], x[0, 1]),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_values(function: Callable[..., Any], dtype: torch.dtype) -> None:
    x = X.to(dtype)
    try:
        function(x)
    except RuntimeError:
        compare_errors(function, x)
    else:
        compare(function, x)


FACTORIES: list[Callable[[str, torch.dtype], Tensor]] = [
    lambda d, t: torch.arange(10, dtype=t, device=d),
    lambda d, t: torch.arange(3, 17, 2, dtype=t, device=d),
    lambda d, t: torch.arange(17, 3, -5, dtype=t, device=d) if t.is_signed else torch.arange(3, dtype=t, device=d),
    lambda d, t: (
        torch.arange(0, 1, 0.1, dtype=t, device=d) if t.is_floating_point else torch.arange(5, 5, dtype=t, device=d)
    ),
    lambda d, t: (
        torch.arange(2**40, 2**40 + 3, dtype=t, device=d) if t is torch.int64 else torch.arange(4, dtype=t, device=d)
    ),
    lambda d, t: torch.arange(6, out=torch.empty(3, 4, dtype=t, device=d)[:, ::2]),
    lambda d, t: (
        torch.linspace(-3, 9, 7, dtype=t, device=d) if t.is_signed else torch.linspace(3, 9, 7, dtype=t, device=d)
    ),
    lambda d, t: torch.linspace(1, 2, 0, dtype=t, device=d),
    lambda d, t: torch.linspace(1, 2, 1, dtype=t, device=d),
    lambda d, t: torch.logspace(0, 2, 5, dtype=t, device=d),
    lambda d, t: torch.eye(4, dtype=t, device=d),
    lambda d, t: torch.eye(3, 5, dtype=t, device=d),
    lambda d, t: torch.eye(0, 5, dtype=t, device=d),
    lambda d, t: torch.full((2, 3), 7, dtype=t, device=d),
]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
def test_factories(factory: Callable[[str, torch.dtype], Tensor], dtype: torch.dtype) -> None:
    compare(lambda anchor: factory(anchor.device.type, dtype), torch.ones(1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("row, column, offset", [(3, 4, 0), (4, 3, 1), (5, 5, -2), (0, 3, 0), (3, 3, 9)])
def test_triangles(dtype: torch.dtype, row: int, column: int, offset: int) -> None:
    compare(lambda a: torch.tril_indices(row, column, offset, dtype=dtype, device=a.device), torch.ones(1))
    compare(lambda a: torch.triu_indices(row, column, offset, dtype=dtype, device=a.device), torch.ones(1))


def test_repeat_interleave_without_a_size_waits_for_it() -> None:
    compare(lambda r: torch.repeat_interleave(r), torch.tensor([1, 0, 3]), waits=True)
    compare(lambda x, r: x.repeat_interleave(r, 1), X, torch.tensor([1, 0, 3]), waits=True)


def test_combinations_wait_for_their_number() -> None:
    compare(lambda x: torch.combinations(x[0, 0, 0]), X, waits=True)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_gradients(p: float) -> None:
    def gradients(x: Tensor) -> tuple[Tensor, ...]:
        x = x.detach().requires_grad_()
        y = torch.cdist(x[0], x[1], p=p).sum() + x.unfold(3, 3, 1).pow(2).sum() + F.pad(x, (1, 2)).pow(2).sum()
        return torch.autograd.grad(y + x.flip(1).roll(2, 0).pow(3).sum(), x)

    compare(gradients, torch.randn(2, 3, 4, 5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(9),
        lambda x: x.flip(0, 0),
        lambda x: x.roll((1, 2), 0),
        lambda x: x.roll(1, 9),
        lambda x: F.pad(x, (1, 2, 3)),
        lambda x: F.pad(x, (1,) * 10),
        lambda x: F.pad(x, (-3, -3)),
        lambda x: torch.repeat_interleave(x),
        lambda x: torch.repeat_interleave(torch.tensor([[1]], device=x.device)),
        lambda x: torch.repeat_interleave(torch.tensor([1, 2], device=x.device), output_size=7),
        lambda x: torch.arange(0, 3, 0, device=x.device),
        lambda x: torch.arange(0, float("inf"), device=x.device),
        lambda x: torch.arange(3, 0, device=x.device),
        lambda x: torch.arange(3, dtype=torch.bool, device=x.device),
        lambda x: torch.linspace(0, 1, -1, device=x.device),
        lambda x: torch.eye(-1, device=x.device),
        lambda x: torch.tril_indices(-1, 2, device=x.device),
        lambda x: torch.cdist(x[0], x[1, :, :, :3]),
        lambda x: torch.cdist(x[0], x[1], p=-1),
        lambda x: torch.cdist(x[0].long(), x[1].long()),
        lambda x: torch.cdist(x[0, 0, 0], x[1, 0]),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[..., Any]) -> None:
    compare_errors(function, X)
