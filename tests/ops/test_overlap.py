"""What is written must not be a part of what is read: the error comes at the call, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE
from torch import Tensor


def index(x: Tensor, *values: int) -> Tensor:
    return torch.tensor(values, device=x.device)


CALLS: dict[str, Callable[[Tensor], object]] = {
    "cumsum": lambda b: torch.cumsum(b[:-1], 0, out=b[1:]),
    "logcumsumexp": lambda b: torch.logcumsumexp(b[:-1], 0, out=b[1:]),
    "sort": lambda b: torch.sort(b[:-1], out=(b[1:], index(b, 0))),
    "topk": lambda b: torch.topk(b[:-1], 9, out=(b[1:], index(b, 0))),
    "kthvalue": lambda b: torch.kthvalue(b[:9].view(3, 3), 1, out=(b[1:4], index(b, 0))),
    "scatter": lambda b: torch.scatter(b[:-1], 0, index(b, 0), 9.0, out=b[1:]),
    "scatter_add": lambda b: torch.scatter_add(b[:-1], 0, index(b, 0), b.new_ones(1), out=b[1:]),
    "index_copy": lambda b: torch.index_copy(b[:-1], 0, index(b, 0), b.new_ones(1), out=b[1:]),
    "take": lambda b: torch.take(b[:-1], index(b, *range(9)), out=b[1:]),
    "addmv": lambda b: torch.addmv(b[:3], b[:9].view(3, 3), b[5:8], out=b[1:4]),
    "addmm": lambda b: torch.addmm(b[:4].view(2, 2), b[:4].view(2, 2), b[:4].view(2, 2), out=b[1:5].view(2, 2)),
    "addr": lambda b: torch.addr(b[:4].view(2, 2), b[:2], b[:2], out=b[1:5].view(2, 2)),
    "angle": lambda b: torch.angle(b[:-1], out=b[1:]),
    "logit": lambda b: torch.logit(b[:-1], out=b[1:]),
    "hardswish": lambda b: torch.ops.aten.hardswish.out(b[:-1], out=b[1:]),
    "hardtanh": lambda b: torch.ops.aten.hardtanh.out(b[:-1], out=b[1:]),
    "mode": lambda b: torch.mode(b[:9].view(3, 3), 1, out=(b[1:4], index(b, 0))),
}


@pytest.mark.parametrize("name", CALLS)
def test_part_of_the_input(name: str) -> None:
    on_cpu, on_device = torch.arange(1.0, 11), torch.arange(1.0, 11, device=DEVICE)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        CALLS[name](on_cpu)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        CALLS[name](on_device)
    assert on_device.tolist() == list(range(1, 11))


def test_beside_the_input_is_allowed() -> None:
    for device in ("cpu", DEVICE):
        b = torch.arange(1.0, 11, device=device)
        torch.cumsum(b[:5], 0, out=b[5:])
        torch.ops.aten.hardtanh.out(b[:5], 0, 3, out=b[5:])
        assert b.tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 3, 3]


def test_out_gets_the_strides_of_the_cpu() -> None:
    results = []
    for device in ("cpu", DEVICE):
        for _ in range(2):
            x = torch.arange(64.0, device=device).view(1, 1, 8, 8)
            pooled = torch.zeros(4, 4, 1, 1, device=device).permute(3, 2, 1, 0)
            padded = torch.zeros(12, 12, 1, 1, device=device).permute(3, 2, 1, 0)
            torch._C._nn.adaptive_avg_pool2d(x, [4, 4], out=pooled)
            torch._C._nn.reflection_pad2d(x, [2, 2, 2, 2], out=padded)
            results.append([(out.stride(), out.tolist()) for out in (pooled, padded)])
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize(
    "product",
    [
        lambda a: a @ a.double(),
        lambda a: torch.mm(a, a.half()),
        lambda a: torch.bmm(a[None], a[None].half()),
        lambda a: torch.baddbmm(a[None], a[None], a[None].half()),
        lambda a: torch.nn.functional.linear(a, a.half()),
        lambda a: torch.mm(a, a.double(), out=torch.empty_like(a)),
    ],
)
def test_products_of_two_dtypes_are_refused_at_the_call(product: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError) as expected:
        product(torch.ones(2, 2))
    with pytest.raises(RuntimeError) as error:
        product(torch.ones(2, 2, device=DEVICE))
    assert str(error.value) == str(expected.value)


@pytest.mark.parametrize(
    "factorise",
    [
        torch.linalg.cholesky_ex,
        torch.linalg.inv_ex,
        torch.linalg.lu_factor_ex,
        lambda a, check_errors: torch.linalg.solve_ex(a, a, check_errors=check_errors),
    ],
)
def test_errors_that_are_asked_for_come_at_the_call(factorise: Callable[..., object]) -> None:
    singular = torch.zeros(3, 3, device=DEVICE)
    factorise(singular, check_errors=False)
    with pytest.raises(RuntimeError, match="linalg"):
        factorise(singular, check_errors=True)
