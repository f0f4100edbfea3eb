"""Arguments on several devices: moved or refused as torch.cuda does it, never written as a copy or read too early."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE
from torch import Tensor


def on_device(values: list) -> Tensor:
    return torch.tensor(values, device=DEVICE)


@pytest.mark.parametrize("index", [[0, 2], [True, False, True]])
def test_reading_a_host_tensor_by_a_device_index(index: list) -> None:
    for read in (lambda x, i: x[i], lambda x, i: torch.ops.aten.index.Tensor_out(x, [i], out=torch.empty(2))):
        with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device as the indexed"):
            read(torch.ones(3), on_device(index))


def test_reading_a_host_tensor_by_indices_of_both() -> None:
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        torch.ones(3, 3)[on_device([0, 1]), torch.tensor([True, True, False])]


@pytest.mark.parametrize("index", [[0, 2], [True, False, True]])
@pytest.mark.parametrize("value", [5.0, torch.full((2,), 5.0), torch.tensor(5.0), torch.tensor(5.0, device=DEVICE)])
def test_writing_a_host_tensor_by_a_device_index(index: list, value: float | Tensor) -> None:
    x = torch.ones(3)
    x[on_device(index)] = value
    assert x.tolist() == [5, 1, 5]


def test_writing_a_host_tensor_by_other_ways() -> None:
    x = torch.ones(3)
    x.index_put_((on_device([1, 1]),), torch.tensor([7.0, 2.0]), accumulate=True)
    assert x.tolist() == [1, 10, 1]
    x[torch.tensor([0])] = torch.tensor(4.0, device=DEVICE)
    x.index_fill_(0, torch.tensor([2]), torch.tensor(6.0, device=DEVICE))
    assert x.tolist() == [4, 10, 6]
    assert x.index_fill(0, torch.tensor([0]), torch.tensor(2.0, device=DEVICE)).tolist() == [2, 10, 6]
    with pytest.raises(RuntimeError, match="same device"):
        x[on_device([0, 1])] = on_device([1.0, 2.0])


def test_filling_a_host_tensor_by_a_device_value() -> None:
    x = torch.ones(3)
    for fill in (x.masked_fill, x.masked_fill_):
        with pytest.raises(RuntimeError, match="same device"):
            fill(x > 0, torch.tensor(5.0, device=DEVICE))


def late(values: list, device: str) -> Tensor:
    """`values` at the end of a long queue of `device`."""
    busy = torch.ones(700, 700, device=device)
    for _ in range(4):
        busy = busy @ busy * 0
    return torch.tensor(values, device=device) + busy.sum().to(torch.tensor(values).dtype)


def test_indices_and_values_of_another_device_are_awaited() -> None:
    x = torch.zeros(4, device="neuron:0")
    x[late([1, 2], "neuron:1")] = 1.0
    x[late([0.0, 0.0, 0.0, 1.0], "neuron:1") > 0] = 2.0
    assert x.tolist() == [0, 1, 1, 2]
    x.index_fill_(0, torch.tensor([0], device="neuron:0"), late(3.0, "neuron:1"))
    x[1] = late(5.0, "neuron:1")
    x[torch.tensor([2])] = late(7.0, "neuron:1")
    assert x.tolist() == [3, 5, 7, 2]


def test_a_mask_fill_refuses_a_value_of_another_device() -> None:
    x = torch.ones(3, device="neuron:0")
    for fill in (x.masked_fill, x.masked_fill_):
        with pytest.raises(RuntimeError, match="same device"):
            fill(x > 0, torch.tensor(5.0, device="neuron:1"))


FUSED: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "Adam": lambda p: torch.optim.Adam(p, fused=True),
    "AdamW with amsgrad": lambda p: torch.optim.AdamW(p, fused=True, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, fused=True),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_refuses_state_on_the_host(name: str) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = FUSED[name](list(model.parameters()))
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.to(DEVICE)
    model(torch.ones(1, 2, device=DEVICE)).sum().backward()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but got .* on cpu"):
        optimizer.step()


def test_unscaling_refuses_gradients_on_the_host() -> None:
    one, zero = torch.ones((), device=DEVICE), torch.zeros((), device=DEVICE)
    with pytest.raises(RuntimeError, match="got scaled_grads on cpu"):
        torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(2)], zero, one)
    with pytest.raises(RuntimeError, match="got growth_tracker on cpu"):
        torch._amp_update_scale_(one, torch.zeros((), dtype=torch.int32), zero, 2.0, 0.5, 10)


WRITTEN: dict[str, Callable[[Tensor], object]] = {
    "logit": lambda x: torch.logit(x, out=torch.zeros(())),
    "complex": lambda x: torch.complex(x, x, out=torch.zeros((), dtype=torch.complex64)),
    "polar": lambda x: torch.polar(x, x, out=torch.zeros((), dtype=torch.complex64)),
    "addbmm_": lambda x: torch.tensor(0.0).addbmm_(x.expand(2, 2, 2), x.expand(2, 2, 2)),
    "frexp": lambda x: torch.frexp(x, out=(torch.zeros(()), torch.zeros((), dtype=torch.int32))),
    "bucketize": lambda x: torch.bucketize(x, x.expand(2), out=torch.zeros((), dtype=torch.int64)),
    "searchsorted": lambda x: torch.searchsorted(x.expand(2), x, out=torch.zeros((), dtype=torch.int64)),
    "mode": lambda x: torch.mode(x, 0, out=(torch.zeros(()), torch.zeros((), dtype=torch.int64))),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_results_do_not_go_to_the_host(name: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        WRITTEN[name](torch.tensor(0.3, device=DEVICE))


def test_overlapping_writes() -> None:
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
        x.put_(torch.tensor([3], device=DEVICE), x[0, :1])
    with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
        torch.index_select(x, 0, torch.tensor([0], device=DEVICE), out=x)
    assert x.tolist() == torch.arange(12.0).view(3, 4).tolist()
