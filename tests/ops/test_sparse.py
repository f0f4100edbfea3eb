"""Sparse tensors: CPU's values, indices and gradients, on the device that was asked for."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

INDICES = torch.tensor([[0, 1, 1], [1, 0, 0]])
VALUES = torch.tensor([1.0, 2.0, 3.0])
SQUARE = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
WIDE = torch.arange(6.0).view(2, 3)


@pytest.fixture(autouse=True)
def unchecked() -> Any:
    with torch.sparse.check_sparse_tensor_invariants(False):
        yield


def coo(device: str, values: Tensor = VALUES) -> Tensor:
    return torch.sparse_coo_tensor(INDICES.clone().to(device), values.clone().to(device), (2, 2))


def csr(device: str) -> Tensor:
    return SQUARE.to(device).to_sparse_csr()


def parts(tensor: Tensor) -> list[Tensor]:
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values(), torch.tensor(tensor.is_coalesced())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout == torch.sparse_csc:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def compare(function: Callable[[str], Any]) -> None:
    for actual, expected in zip(tree_leaves(function("neuron")), tree_leaves(function("cpu")), strict=True):
        assert actual.device.type == "neuron"
        assert (actual.layout, actual.shape, actual.dtype) == (expected.layout, expected.shape, expected.dtype)
        for a, e in zip(parts(actual), parts(expected), strict=True):
            torch.testing.assert_close(a.cpu(), e)


@pytest.mark.parametrize(
    "function",
    [
        coo,
        lambda d: torch.sparse_coo_tensor(INDICES, VALUES, (2, 2), device=d, check_invariants=True),
        lambda d: torch.sparse_coo_tensor(INDICES.to(d), VALUES.to(d)),
        lambda d: coo("cpu").to(d),
        lambda d: torch.zeros(2, 3, layout=torch.sparse_coo, device=d),
        lambda d: torch.zeros_like(coo(d)),
        lambda d: SQUARE.to(d).to_sparse(),
        lambda d: SQUARE.to(d).sparse_mask(coo(d).coalesce()),
        csr,
        lambda d: csr("cpu").to(d),
        lambda d: torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), VALUES[:2], (2, 2), device=d),
        lambda d: torch.zeros(2, 2, layout=torch.sparse_csr, device=d),
        lambda d: SQUARE.to(d).to_sparse_csc(),
        lambda d: SQUARE.to(d).to_sparse_bsr((1, 1)),
        lambda d: coo(d).to_sparse_csr(),
        lambda d: csr(d).to_sparse(),
    ],
)
def test_making(function: Callable[[str], Any]) -> None:
    compare(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.to_dense(),
        lambda s: s.coalesce(),
        lambda s: s.coalesce().values(),
        lambda s: s @ WIDE.to(s.device),
        lambda s: s @ torch.ones(2, device=s.device),
        lambda s: torch.sparse.addmm(torch.ones(2, 3, device=s.device), s, WIDE.to(s.device)),
        lambda s: torch.sparse.mm(s, s),
        lambda s: torch.bmm(torch.stack([s, s]), torch.ones(2, 2, 2, device=s.device)),
        lambda s: s + s,
        lambda s: s - s,
        lambda s: SQUARE.to(s.device) + s,
        lambda s: s * s,
        lambda s: s * 3,
        lambda s: s * SQUARE.to(s.device),
        lambda s: s / 2,
        lambda s: -s,
        lambda s: s.coalesce().sqrt(),
        lambda s: s.pow(2),
        lambda s: s.sum(),
        lambda s: torch.sparse.sum(s, 0),
        lambda s: torch.sparse.softmax(s, 1),
        lambda s: s.norm(),
        lambda s: s.t(),
        lambda s: torch.cat([s, s]),
        lambda s: s.index_select(0, torch.tensor([1], device=s.device)),
        lambda s: s[0],
        lambda s: s.unsqueeze(0),
        lambda s: s.clone(),
        lambda s: s.double(),
        lambda s: s.to(torch.bfloat16),
        lambda s: copy.deepcopy(s),
        lambda s: pickle.loads(pickle.dumps(s)),
        lambda s: s.detach().coalesce(),
    ],
)
def test_operators(function: Callable[[Tensor], Any]) -> None:
    compare(lambda device: function(coo(device)))


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.add_(s),
        lambda s: s.add_(s * 2, alpha=3),
        lambda s: s.mul_(2),
        lambda s: s.zero_(),
        lambda s: s.transpose_(0, 1),
        lambda s: s.copy_(s.coalesce()),
        lambda s: s.copy_(coo("cpu").coalesce()),
        lambda s: s._values().fill_(4),
        lambda s: torch.add(s, s, out=s),
    ],
)
def test_operators_in_place(function: Callable[[Tensor], Any]) -> None:
    def changed(device: str) -> Tensor:
        sparse = coo(device)
        function(sparse)
        return sparse

    compare(changed)
    compare(lambda device: SQUARE.clone().to(device).add_(coo(device), alpha=-2))


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.to_dense(),
        lambda s: s @ WIDE.to(s.device),
        lambda s: s * 2,
        lambda s: s + s,
        lambda s: s.t().to_dense(),
        lambda s: s.sum(),
        lambda s: s.double(),
        lambda s: -s,
        lambda s: s.clone(),
        lambda s: pickle.loads(pickle.dumps(s)),
    ],
)
def test_compressed_rows(function: Callable[[Tensor], Any]) -> None:
    compare(lambda device: function(csr(device)))


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.to_dense() * SQUARE.to(s.device),
        lambda s: torch.sparse.mm(s, WIDE.to(s.device)),
        lambda s: (s * s).to_dense(),
        lambda s: (s + s).to_dense(),
        lambda s: s.coalesce().values(),
        lambda s: torch.sparse.sum(s),
    ],
)
def test_gradients(function: Callable[[Tensor], Tensor]) -> None:
    def gradient(device: str) -> Tensor | None:
        values = VALUES.clone().to(device).requires_grad_()
        function(torch.sparse_coo_tensor(INDICES.to(device), values, (2, 2))).sum().backward()
        return values.grad

    compare(gradient)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad])
def test_training_with_sparse_gradients(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    def trained(device: str) -> Tensor:
        embedding = torch.nn.Embedding(5, 2, sparse=True, _weight=torch.arange(10.0).view(5, 2)).to(device)
        steps = optimizer(embedding.parameters(), lr=0.5)
        for _ in range(3):
            steps.zero_grad()
            embedding(torch.tensor([1, 3, 1], device=device)).pow(2).sum().backward()
            steps.step()
        return embedding.weight

    compare(trained)


def test_parts_share_their_memory_and_lie_on_the_device_of_the_tensor() -> None:
    values = VALUES.to("neuron:1")
    sparse = torch.sparse_coo_tensor(INDICES.to("neuron:1"), values, (2, 2))
    assert sparse.device == sparse._values().device == sparse.coalesce().device == torch.device("neuron:1")
    assert sparse._values().data_ptr() == values.data_ptr()
    assert sparse.to("neuron:0").to_dense().tolist() == sparse.cpu().to_dense().tolist() == [[0, 1], [5, 0]]
    assert "device='neuron:1'" in str(sparse) and "neuron:0" in str(csr("neuron"))


def test_saving() -> None:
    file = io.BytesIO()
    torch.save(coo("neuron"), file)
    file.seek(0)
    assert torch.load(file).device == torch.device("neuron:0")
    file.seek(0)
    assert torch.load(file, map_location="cpu").to_dense().tolist() == [[0, 1], [5, 0]]


@pytest.mark.parametrize(
    "function, error, message",
    [
        (lambda s: s @ torch.ones(2, 2), RuntimeError, "same device"),
        (lambda s: s @ torch.ones(2, 2, device="neuron:1"), RuntimeError, "same device"),
        (lambda s: s.gather(0, s), NotImplementedError, "aten::gather"),
        (lambda s: s.values(), RuntimeError, "uncoalesced"),
        (
            lambda s: torch.sparse_coo_tensor(s._indices() + 5, s._values(), (2, 2), check_invariants=True),
            RuntimeError,
            "found index 6",
        ),
    ],
)
def test_errors(function: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        function(coo("neuron"))


def test_no_memory_is_left_behind() -> None:
    def work() -> None:
        a = torch.rand(20, 20, device="neuron").to_sparse()
        b = (a @ a.to_dense()).to_sparse().coalesce()
        a.add_(b).mul_(2).zero_()

    work()
    torch.neuron.synchronize()
    before = torch.neuron.memory_allocated()
    for _ in range(20):
        work()
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() == before
