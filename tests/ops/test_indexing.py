"""Indexing by tensors, masks and positions: CPU's values, strides and errors; no waiting where the size is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, compare, compare_errors, launches_only
from torch import Tensor

X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
ROWS = torch.tensor([1, 0, 1])
COLUMNS = torch.tensor([2, -1, 0])
MASK = torch.tensor([True, False, True])

READS: dict[str, Callable[..., Any]] = {
    "one": lambda x, i, j: x[i],
    "two": lambda x, i, j: x[i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "last": lambda x, i, j: x[..., j],
    "middle": lambda x, i, j: x[:, j, 1:],
    "broadcast": lambda x, i, j: x[i[:, None], j],
    "grid": lambda x, i, j: x[:, :, i[:, None], j[None]],
    "int32": lambda x, i, j: x[i.int()],
    "number_and_tensor": lambda x, i, j: x[1, j],
    "none_and_tensor": lambda x, i, j: x[None, i],
    "zero_dim": lambda x, i, j: x[i[0]],
    "zero_dim_tensor_index": lambda x, i, j: x[i[0].clone()],
    "empty": lambda x, i, j: x[i[:0]],
    "of_transposed": lambda x, i, j: x.transpose(0, 3)[:, :, j],
    "of_channels_last": lambda x, i, j: x.to(memory_format=torch.channels_last)[i],
    "of_a_slice": lambda x, i, j: x[:, ::2, 1:][i],
    "out": lambda x, i, j: torch.ops.aten.index.Tensor_out(x, [i], out=x.new_empty(0)),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_reads(name: str, dtype: torch.dtype) -> None:
    waits = name.startswith("zero_dim")  # PyTorch reads an index without dimensions, on every device
    compare(READS[name], X.to(dtype), ROWS, COLUMNS, waits=waits)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: x[:, m],
        lambda x, m: x[x > 10],
        lambda x, m: x[:, m, 0],
        lambda x, m: x[torch.tensor([1, 0], device=x.device), m],
        lambda x, m: x[:, m & ~m],
        lambda x, m: torch.masked_select(x, x > 30),
        lambda x, m: (x > 7).nonzero(),
        lambda x, m: torch.argwhere(x > 7),
    ],
)
def test_reads_whose_size_depends_on_values(function: Callable[..., Any]) -> None:
    compare(function, X, MASK, waits=True)


def test_an_index_on_the_cpu_may_index_the_device() -> None:
    x = X.to(DEVICE)
    assert torch.equal(x[ROWS].cpu(), X[ROWS]) and torch.equal(x[:, MASK].cpu(), X[:, MASK])
    x[ROWS] = 0.0
    assert not x.any()


WRITES: dict[str, Callable[..., Any]] = {
    "scalar": lambda x, i, j: x.__setitem__(i, 7),
    "two_scalars": lambda x, i, j: x.__setitem__((i, j), -1.5),
    "apart": lambda x, i, j: x.__setitem__((i, slice(None), j), 3),
    "values": lambda x, i, j: x.__setitem__((slice(None), j), x[:, :3] * 2),
    "broadcast_values": lambda x, i, j: (
        x.__setitem__((slice(None), j), x[0, :, 0] * 2) if x.size(3) == x.size(2) else x.__setitem__(j, x[0, 0])
    ),
    "mask": lambda x, i, j: x.__setitem__(x > 20, 0),
    "mask_of_rows": lambda x, i, j: x.__setitem__((slice(None), x[0, :, 0, 0] > 10), -1),
    "mask_and_tensor": lambda x, i, j: x.__setitem__((i[:2], x[0, :, 0, 0] > 10), 5),
    "mask_with_values": lambda x, i, j: x.__setitem__(x > 100, torch.arange(19.0, device=x.device)),
    "accumulate": lambda x, i, j: x.index_put_((i,), x[0] * 0 + 1, accumulate=True),
    "accumulate_two": lambda x, i, j: x.index_put_((i, j), torch.ones(3, 4, 5, device=x.device), accumulate=True),
    "accumulate_mask": lambda x, i, j: x.index_put_((x > 50,), torch.tensor(2.0, device=x.device), accumulate=True),
    "functional": lambda x, i, j: x.index_put((i,), torch.tensor(9.0, device=x.device)),
    "into_transposed": lambda x, i, j: x.transpose(1, 2).__setitem__((i, j), 4),
    "int32": lambda x, i, j: x.__setitem__(i.int(), 7),
    "empty": lambda x, i, j: x.__setitem__(i[:0], 7),
    "empty_mask": lambda x, i, j: x.__setitem__(x > 1e9, 7),
}


@pytest.mark.parametrize("name", [n for n in WRITES if n not in ("values", "broadcast_values")])
def test_writes_do_not_wait(name: str) -> None:
    compare(WRITES[name], X, torch.tensor([1, 0, 0]), COLUMNS)


@pytest.mark.parametrize("name", ["values"])
def test_writes_of_values(name: str) -> None:
    compare(WRITES[name], X, ROWS, COLUMNS)


def test_gradients_of_indexing() -> None:
    def gradient(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (x[i, :, j].pow(2).sum() + x[:, j[:, None], i].sum()).backward()
        assert x.grad is not None
        return x.grad

    compare(gradient, X, ROWS, COLUMNS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, j: x[i.float()],
        lambda x, i, j: x[i, i, i, i, i],
        lambda x, i, j: x[i, j[:2]],
        lambda x, i, j: x[x[0] > 3],
        lambda x, i, j: x[:, :0][:, j],
        lambda x, i, j: x.index_put_((i, j[:2]), x.new_ones(())),
        lambda x, i, j: x.index_put_((i,), x.new_ones(7)),
        lambda x, i, j: x.index_put_((i,), x.new_ones(()).double()),
        lambda x, i, j: x.index_put_((i.float(),), x.new_ones(())),
        lambda x, i, j: x.index_put_((i, i, i, i, i), x.new_ones(())),
        lambda x, i, j: x.index_put_((x[0] > 3,), x.new_ones(())),
        lambda x, i, j: x.index_put_((x > 3,), x.new_ones(7)),
        lambda x, i, j: x[j],
        lambda x, i, j: x.index_put_((j,), x.new_ones(())),
        lambda x, i, j: x.index_select(7, i),
        lambda x, i, j: x.index_select(0, x[0, 0]),
        lambda x, i, j: x.index_select(0, i.float()),
        lambda x, i, j: x.index_select(0, j + 5),
        lambda x, i, j: x.new_ones(()).index_select(0, i),
        lambda x, i, j: torch.index_select(x, 0, i, out=x.new_empty(0).double()),
        lambda x, i, j: x.take(i.int()),
        lambda x, i, j: x.take(i + 1000),
        lambda x, i, j: x[:0].take(i),
        lambda x, i, j: x.put_(i, x.new_ones(2)),
        lambda x, i, j: x.put_(i, x.new_ones(3).double()),
        lambda x, i, j: x.put_(i + 1000, x.new_ones(3)),
        lambda x, i, j: x.masked_fill(x, 1),
        lambda x, i, j: x.masked_fill_(x, 1),
        lambda x, i, j: x.masked_fill_(x[0] > 1, x.new_ones(2)),
        lambda x, i, j: x.masked_fill(x.new_ones(7) > 0, 1),
        lambda x, i, j: x[:1].masked_fill_(x > 0, 1),
        lambda x, i, j: x.long().masked_fill_(x > 0, 1j),
        lambda x, i, j: x.to(torch.uint8).masked_fill_(x > 0, 300),
        lambda x, i, j: x.masked_scatter_(x > 0, x.double()),
        lambda x, i, j: x.masked_scatter_(x, x),
        lambda x, i, j: x.masked_scatter_(x > 0, x[0, 0, 0]),
        lambda x, i, j: x.index_fill_(0, i.float(), 1),
        lambda x, i, j: x.index_fill_(0, i[:, None], 1),
        lambda x, i, j: x.index_fill_(9, i, 1),
        lambda x, i, j: x.index_fill_(0, i, x.new_ones(2)),
        lambda x, i, j: x.index_fill_(0, j + 5, 1),
        lambda x, i, j: x.index_add(0, i, x[:1]),
        lambda x, i, j: x.gather(0, i),
        lambda x, i, j: x[0, 0, 0].gather(0, i + 100),
        lambda x, i, j: x[0, 0, 0].scatter_(0, i + 100, 1.0),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[..., Any]) -> None:
    compare_errors(function, X, ROWS, COLUMNS)


def test_no_memory_is_shared_by_target_and_values() -> None:
    compare_errors(lambda x: x.index_put_((torch.tensor([0], device=x.device),), x[1:]), torch.ones(2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.index_select(-1, i.int()),
        lambda x, i: x.transpose(0, 3).index_select(1, i),
        lambda x, i: x.index_select(1, i[0]),
        lambda x, i: x[0, 0, 0, 0].index_select(0, i[:1]),
        lambda x, i: x.index_select(2, i[:0]),
        lambda x, i: torch.index_select(x, 0, i, out=x.new_empty(3, 3, 4, 5)),
        lambda x, i: x.take(i * 7),
        lambda x, i: x.t_().take(i[:, None]) if x.dim() == 2 else x.transpose(0, 1).take(i[:, None]),
        lambda x, i: x.put_(i * 3, torch.tensor([9.0, 8.0, 7.0], device=x.device), accumulate=True),
        lambda x, i: x.put_(torch.tensor([5, 6], device=x.device), torch.tensor([9.0, 8.0], device=x.device)),
        lambda x, i: x.masked_fill(x > 4, 1.5),
        lambda x, i: x.masked_fill(x[0] > 4, torch.tensor(2.5, device=x.device)),
        lambda x, i: x[:1].masked_fill(x > 4, -1),
        lambda x, i: x.transpose(0, 1).masked_fill(x[0, 0, 0] > 2, float("-inf")),
        lambda x, i: x.masked_fill_(x > 4, 1.5),
        lambda x, i: x.masked_fill_(x[0, 0] > 4, torch.tensor(2.5)),
        lambda x, i: x.transpose(1, 3).masked_fill_(x[0, 0, :, :1] > 4, torch.tensor(2.5)),
        lambda x, i: x.long().masked_fill_(x > 4, 3),
        lambda x, i: x.bool().masked_fill_(x > 4, False),
        lambda x, i: x.masked_scatter_(x > 10, x.flip(0) * 2),
        lambda x, i: x.masked_scatter(x[0, 0] > 10, x.flip(0) * 2),
        lambda x, i: x.index_fill_(1, i, 3),
        lambda x, i: x.index_fill(2, i, torch.tensor(3.5, device=x.device)),
        lambda x, i: x.index_add_(1, i, torch.ones(2, 3, 4, 5, device=x.device), alpha=2),
        lambda x, i: x.index_copy_(1, i[1:], torch.ones(2, 2, 4, 5, device=x.device)),
        lambda x, i: x.index_reduce_(1, i, torch.ones(2, 3, 4, 5, device=x.device) * 3, "prod"),
    ],
)
def test_operators_with_one_index(function: Callable[..., Any]) -> None:
    compare(function, X, torch.tensor([0, 1, 1]))


def test_a_wrong_index_is_reported_at_the_next_wait_and_the_device_goes_on() -> None:
    x = torch.zeros(4, device=DEVICE)
    with launches_only():
        x[torch.tensor([7], device=DEVICE)]
    with pytest.raises(IndexError, match="index 7 is out of bounds.*size 4"):
        torch.neuron.synchronize()
    assert (x + 1).tolist() == [1] * 4
