"""Nested tensors of strided layout, and attention on those of jagged layout."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE
from torch import Tensor, nn

LENGTHS = (3, 5, 1)


def parts(width: int = 8, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, width, generator=generator) for length in LENGTHS]


def nested(tensors: list[Tensor], device: str, requires_grad: bool = False) -> Tensor:
    return torch.nested.nested_tensor(tensors, device=device, requires_grad=requires_grad)


def check(call: Callable[[Tensor], Tensor]) -> None:
    """The result of `call`, nested or not, is CPU's."""
    expected, got = call(nested(parts(), "cpu")), call(nested(parts(), DEVICE))
    assert got.device.type == DEVICE and got.is_nested == expected.is_nested and got.dtype == expected.dtype
    pairs = zip(got.unbind(), expected.unbind()) if expected.is_nested else [(got, expected)]
    for one, other in pairs:
        torch.testing.assert_close(one.cpu(), other)


def test_making_and_taking_apart() -> None:
    made = nested(parts(), DEVICE)
    assert made.device == torch.device(DEVICE, 0) and made.is_nested and made.layout == torch.strided
    assert made.dim() == 3 and made.size(0) == 3 and made.numel() == sum(LENGTHS) * 8
    for got, part in zip(made.unbind(), parts()):
        assert torch.equal(got.cpu(), part)
    assert torch.equal(made._nested_tensor_size(), torch.tensor([[3, 8], [5, 8], [1, 8]]))
    assert torch.equal(made._nested_tensor_storage_offsets(), torch.tensor([0, 24, 64]))
    gathered = torch.nested.as_nested_tensor([part.to(DEVICE) for part in parts()])
    for got, part in zip(gathered.to("cpu").unbind(), parts()):
        assert torch.equal(got, part)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_moving_and_casting(dtype: torch.dtype) -> None:
    check(lambda x: x.to(dtype))
    check(lambda x: x.cpu().to(dtype).to(DEVICE) if x.device.type == DEVICE else x.to(dtype))


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + x,
    "mul": lambda x: x * 2.5,
    "div": lambda x: x / x,
    "neg": torch.neg,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "sqrt": lambda x: x.abs().sqrt(),
    "greater": lambda x: x > 0,
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "in place": lambda x: x.clone().mul_(3).add_(x).relu_(),
    "zero": lambda x: x.clone().zero_(),
    "fill": lambda x: x.clone().fill_(4.0),
    "ones_like": torch.ones_like,
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str) -> None:
    check(POINTWISE[name])


SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": lambda x: x.transpose(1, 2),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "select": lambda x: x[1],
    "narrow": lambda x: x.narrow(0, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "view": lambda x: x.view(3, -1, 2, 4),
    "reshape": lambda x: x.reshape(3, -1, 2, 4).transpose(1, 2),
    "chunk": lambda x: x.chunk(2, -1)[1].contiguous(),
    "split": lambda x: x.split_with_sizes([3, 5], -1)[0].contiguous(),
    "cat": lambda x: torch.cat([x, x]),
    "padded": lambda x: x.to_padded_tensor(-1.0),
    "padded to a size": lambda x: torch.nested.to_padded_tensor(x, 0.0, (4, 6, 9)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    check(SHAPES[name])


def weights(x: Tensor, *sizes: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(len(sizes))).to(x.device)


COMPUTING: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: F.linear(x, weights(x, 4, 8), weights(x, 4)),
    "layer_norm": lambda x: F.layer_norm(x, (8,), weights(x, 8), weights(x, 8)),
    "softmax": lambda x: x.softmax(-1),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "matmul of heads": lambda x: x.view(3, -1, 2, 4).transpose(1, 2) @ x.view(3, -1, 2, 4).transpose(1, 2).mT,
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "dropout in eval": lambda x: F.dropout(x, 0.5, training=False),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(3, -1, 2, 4).transpose(1, 2).contiguous()] * 3),
}


@pytest.mark.parametrize("name", COMPUTING)
def test_computing(name: str) -> None:
    check(COMPUTING[name])


def test_embedding() -> None:
    table, words = torch.arange(12.0).view(4, 3), [torch.tensor([1, 0]), torch.tensor([3])]
    looked_up = F.embedding(nested(words, DEVICE), table.to(DEVICE))
    assert [part.tolist() for part in looked_up.unbind()] == [[[3, 4, 5], [0, 1, 2]], [[9, 10, 11]]]


DIFFERENTIABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: F.gelu(x * 2 + x) * F.relu(x),
    "silu": F.silu,
    "linear": COMPUTING["linear"],
    "layer_norm": COMPUTING["layer_norm"],
    "softmax": COMPUTING["softmax"],
    "matmul": COMPUTING["matmul"],
    "sum": COMPUTING["sum"],
    "attention": COMPUTING["attention"],
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    gradients = []
    for device in ("cpu", DEVICE):
        leaf = nested(parts(), device, requires_grad=True)
        DIFFERENTIABLE[name](leaf).to_padded_tensor(0.0).square().sum().backward()
        assert leaf.grad is not None and leaf.grad.is_nested
        gradients.append([part.cpu() for part in leaf.grad.unbind()])
    for expected, got in zip(*gradients):
        torch.testing.assert_close(got, expected)


def test_gradients_of_the_parts() -> None:
    leaves = [part.to(DEVICE).requires_grad_() for part in parts()]
    (torch.nested.as_nested_tensor(leaves) * 3).to_padded_tensor(0.0).sum().backward()
    for leaf in leaves:
        assert leaf.grad is not None and torch.equal(leaf.grad.cpu(), torch.full_like(leaf, 3.0, device="cpu"))


def test_dropout_draws_from_the_device() -> None:
    x = nested([torch.ones(400, 50), torch.ones(100, 50)], DEVICE)
    torch.manual_seed(3)
    first = F.dropout(x, 0.25)
    kept = first.values() > 0
    assert 0.72 < kept.float().mean().item() < 0.78
    assert torch.equal(first.values()[kept].cpu(), torch.full((int(kept.sum()),), 1 / 0.75))
    torch.manual_seed(3)
    assert torch.equal(F.dropout(x, 0.25).values(), first.values())


def test_the_text_is_that_of_cpu() -> None:
    assert repr(nested(parts(2), DEVICE)).replace(", device='neuron:0'", "") == repr(nested(parts(2), "cpu"))


def test_copies_and_files() -> None:
    made = nested(parts(), DEVICE)
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(made)), torch.load(file), torch.empty_like(made).copy_(made)):
        assert other.device == made.device
        for got, part in zip(other.unbind(), parts()):
            assert torch.equal(got.cpu(), part)


def test_an_operator_without_a_kernel_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::cumsum.*'neuron'"):
        nested(parts(), DEVICE).cumsum(1)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_with_padding_uses_nested_tensors(norm_first: bool) -> None:
    """In evaluation nn.TransformerEncoder drops the padding by itself."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x, padding = torch.randn(3, 5, 16), torch.arange(5) >= torch.tensor([[3], [5], [1]])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        got = encoder.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE)).cpu()
    torch.testing.assert_close(got[~padding], expected[~padding])
    assert got.shape == expected.shape


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_attention_module(layout: torch.layout) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    results = []
    for device in ("cpu", DEVICE):
        attention.to(device)
        x = nested(parts(), device)
        with torch.inference_mode():
            results.append([part.cpu() for part in attention(x, x, x, need_weights=False)[0].unbind()])
    for expected, got in zip(*results):
        torch.testing.assert_close(got, expected)


def test_attention_on_jagged_tensors() -> None:
    """Against attention on each sequence by itself."""
    leaves = [part.to(DEVICE).requires_grad_() for part in parts()]
    x = torch.nested.as_nested_tensor(leaves, layout=torch.jagged)
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    result = F.scaled_dot_product_attention(heads, heads, heads)
    result.values().square().sum().backward()
    for got, leaf in zip(result.transpose(1, 2).unbind(), leaves):
        alone = leaf.detach().cpu().requires_grad_()
        one = alone.unflatten(-1, (2, 4)).transpose(0, 1)
        expected = F.scaled_dot_product_attention(one, one, one)
        expected.square().sum().backward()
        torch.testing.assert_close(got.detach().cpu(), expected.transpose(0, 1))
        torch.testing.assert_close(leaf.grad.cpu(), alone.grad)
