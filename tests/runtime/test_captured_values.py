"""What a queued task keeps by value: geometry, scalars and index lists may change after the call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

DEVICE = "neuron"


@pytest.fixture(autouse=True)
def busy_stream() -> Iterator[None]:
    """Keeps the worker busy, so that what a test queues runs only after the test has changed its arguments."""
    torch.neuron.synchronize()
    x = torch.eye(1024, device=DEVICE)
    for _ in range(30):
        x = x @ x
    yield
    torch.neuron.synchronize()


def still_busy() -> bool:
    return not torch.neuron.current_stream().query()


def test_sizes_and_strides() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    y = x * 2
    x.t_()
    z = x + 0
    x.resize_(1)
    assert still_busy()
    assert y.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert z.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_an_offset_changed_by_set() -> None:
    x = torch.arange(6.0, device=DEVICE)
    view = x[:2]
    y = view * 10
    view.set_(x.untyped_storage(), 4, (2,), (1,))
    z = view * 10
    view.squeeze_().unsqueeze_(0)
    assert still_busy()
    assert y.tolist() == [0, 10] and z.tolist() == [40, 50]


def test_data_swapped_after_the_call() -> None:
    x = torch.ones(3, device=DEVICE)
    y = x + 1
    x.data = torch.full((3,), 50.0, device=DEVICE)
    assert still_busy()
    assert y.tolist() == [2, 2, 2] and x.tolist() == [50, 50, 50]


def test_the_value_of_a_cpu_scalar_tensor() -> None:
    x, factor = torch.ones(3, device=DEVICE), torch.tensor(2.0)
    y = x * factor
    factor.fill_(100)
    z = torch.add(x, factor, alpha=2)
    factor.fill_(-1)
    w = torch.where(x > 0, factor, x)
    factor.fill_(9)
    lerped = torch.lerp(x, x * 3, 0.5)
    assert still_busy()
    assert y.tolist() == [2, 2, 2] and z.tolist() == [201, 201, 201]
    assert w.tolist() == [-1, -1, -1] and lerped.tolist() == [2, 2, 2]


def test_cpu_scalars_in_place_and_of_other_dtypes() -> None:
    x, step = torch.zeros(2, dtype=torch.float64, device=DEVICE), torch.tensor(3, dtype=torch.int64)
    for _ in range(5):
        x.add_(step)
        step.add_(1)
    flag, number = torch.tensor(True), torch.tensor(1 + 2j)
    y = torch.ones(2, device=DEVICE) * flag
    z = torch.ones(2, dtype=torch.complex64, device=DEVICE) * number
    flag.fill_(False)
    number.fill_(0)
    assert still_busy()
    assert x.tolist() == [25, 25] and y.tolist() == [1, 1] and z.tolist() == [1 + 2j, 1 + 2j]


def test_fill_and_masked_fill_with_a_cpu_scalar() -> None:
    value = torch.tensor(4.0)
    x = torch.zeros(3, device=DEVICE).fill_(value)
    value.fill_(5)
    y = torch.zeros(3, device=DEVICE).masked_fill(torch.tensor([True, False, True], device=DEVICE), value)
    value.fill_(6)
    x[1] = value
    value.fill_(7)
    assert still_busy()
    assert x.tolist() == [4, 6, 4] and y.tolist() == [5, 0, 5]


def test_index_lists_on_the_host() -> None:
    x, index = torch.arange(5.0, device=DEVICE), torch.tensor([4, 0])
    mask = torch.tensor([True, False, False, True, True])
    y = x[index]
    z = x[mask]
    target = torch.zeros(5, device=DEVICE)
    target[index] = torch.tensor([1.0, 2.0], device=DEVICE)
    index.fill_(2)
    mask.fill_(False)
    assert y.tolist() == [4, 0] and z.tolist() == [0, 3, 4] and target.tolist() == [2, 0, 0, 0, 1]


def test_python_lists() -> None:
    dims, sizes = [0, 1], [3, 2]
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    rolled, summed, permuted = x.roll([1, 1], dims), x.sum(dims), x.permute(dims[::-1]).reshape(sizes)
    dims.clear()
    sizes.clear()
    assert still_busy()
    assert rolled.tolist() == [[5, 3, 4], [2, 0, 1]]
    assert summed.item() == 15 and permuted.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_tensor_lists() -> None:
    parts = [torch.full((2,), float(i), device=DEVICE) for i in range(3)]
    joined = torch.cat(parts)
    stacked = torch.stack(parts)
    parts[0] = torch.full((2,), 99.0, device=DEVICE)
    parts[1].resize_(1)
    parts.clear()
    assert still_busy()
    assert joined.tolist() == [0, 0, 1, 1, 2, 2] and stacked.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_inputs_that_die_at_once() -> None:
    y = torch.ones(1 << 16, device=DEVICE) + torch.full((1 << 16,), 2.0, device=DEVICE)
    z = (y * 2).sum() + (y * 3).sum()
    trash = [torch.full((1 << 16,), -5.0, device=DEVICE) for _ in range(8)]
    assert still_busy()
    assert z.item() == 15 * (1 << 16)
    del trash


def test_scalars_of_python() -> None:
    x = torch.ones(2, device=DEVICE)
    results = [x * i for i in range(50)]
    assert still_busy()
    assert [r[0].item() for r in results] == list(range(50))


def test_the_number_of_optimizer_steps_on_the_host() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    reference = torch.nn.Parameter(torch.ones(3))
    for p in (parameter, reference):
        optimizer = torch.optim.Adam([p], lr=0.1, foreach=False, fused=False)
        for _ in range(5):
            p.grad = torch.full_like(p, 0.5)
            optimizer.step()
    torch.testing.assert_close(parameter.detach().cpu(), reference.detach())
