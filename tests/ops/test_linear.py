"""aten::linear as one launch: CPU's values, strides and gradients, and the composite wherever someone could tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from dispatched import dispatched
from gradients import with_gradients
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def operands(*batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(*batch, 6, generator=generator).to(dtype)
    return x, torch.randn(4, 6, generator=generator).to(dtype), torch.randn(4, generator=generator).to(dtype)


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5, twice: bool = False) -> None:
    compare(
        lambda *a: with_gradients(function, *a, twice=twice), *inputs, rtol=tolerance, atol=tolerance, strides=not twice
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0, 3), (1, 1)])
def test_values_and_gradients(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, bias = operands(*batch, dtype=dtype)
    check(F.linear, x, weight, bias, tolerance=TOLERANCE[dtype])
    check(F.linear, x, weight, tolerance=TOLERANCE[dtype])


def test_strided_activations_P_29() -> None:
    """gh:flagos-ai/Torch-FL#76: the forward and the backward function of another device wanted viewable activations."""
    x, weight, bias = operands(2, 3)
    check(lambda x, w, b: F.linear(x.transpose(0, 1), w, b), x, weight, bias)
    check(lambda x, w, b: F.linear(x, w, b).transpose(0, 1).sum(1), x, weight, bias)
    check(lambda x, w, b: F.linear(x[:, ::2], w, b)[..., ::2], x, weight, bias)
    check(lambda x, w, b: F.linear(x[:1].expand(4, 3, 6), w, b).sum(), x, weight, bias)
    check(lambda x, w: F.linear(x[..., :4].mT, w[:, :3]), x, weight)


def test_non_contiguous_weight_P_79() -> None:
    """gh:pytorch/pytorch#162730: a transposed weight gave wrong values on another device."""
    x, weight, bias = operands(2, 3)
    check(lambda x, w, b: F.linear(x, w.t().contiguous().t(), b), x, weight, bias)
    check(lambda x, w: F.linear(x[..., :4], w.t()), x, weight)
    check(lambda x, w, b: F.linear(x[..., ::2], w[:, ::2], b), x, weight, bias)


def test_biases_of_other_shapes_are_the_composite() -> None:
    x, weight, bias = operands(3)
    check(lambda x, w, b: F.linear(x, w, b[:1].view(())), x, weight, bias)
    check(lambda x, w, b: F.linear(x, w, b.expand(3, 4)), x, weight, bias)
    check(lambda x, w: F.linear(x, w[0]), x, weight)


def test_each_operand_alone() -> None:
    x, weight, bias = operands(2, 3)
    for needs in ((True, False, False), (False, True, False), (False, False, True), (False, False, False)):
        leaves = [t.clone().to(DEVICE).requires_grad_(n) for t, n in zip((x, weight, bias), needs)]
        truth = [t.clone().requires_grad_(n) for t, n in zip((x, weight, bias), needs)]
        out, expected = F.linear(*leaves), F.linear(*truth)
        assert out.requires_grad == expected.requires_grad
        if any(needs):
            out.cos().sum().backward()
            expected.cos().sum().backward()
        assert_same([t.grad for t in leaves], [t.grad for t in truth], rtol=1e-5, atol=1e-5)


def test_gradients_of_gradients() -> None:
    check(F.linear, *operands(2, 3, dtype=torch.float64), tolerance=1e-10, twice=True)


def test_gradients_that_are_not_needed_or_undefined() -> None:
    x, weight, bias = (t.to(DEVICE).requires_grad_() for t in operands(3))
    (grad,) = torch.autograd.grad(F.linear(x, weight, bias).sum(), weight)
    torch.testing.assert_close(grad.cpu(), x.detach().cpu().sum(0).expand(4, 6))
    out = F.linear(x, weight, bias)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.sum().backward()
        out.sum().backward()


def test_saved_tensors_are_watched() -> None:
    x, weight, _ = (t.to(DEVICE).requires_grad_() for t in operands(3))
    y = x.exp()
    out = F.linear(y, weight)
    y.data_ptr()
    y.detach().add_(0)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.cpu(), lambda t: t.to(DEVICE)):
        out = F.linear(x, weight)
    assert len(packed) == 2
    out.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), weight.detach().cpu().sum(0).expand(3, 6))


def test_one_launch_forward_and_backward() -> None:
    x, weight, bias = (t.to(DEVICE).requires_grad_() for t in operands(2, 3))
    with launches_only():
        F.linear(x, weight, bias).sum().backward()
        executed = torch.neuron.get_executed_ops()
    assert {"aten::linear", "aten::linear_backward"} <= set(executed)
    assert not {"aten::addmm", "aten::mm"} & set(executed)
    with torch.inference_mode():
        torch.neuron.clear_op_tracking()
        F.linear(*(t.to(DEVICE) for t in operands(2, 3)))
        assert "aten::linear" in torch.neuron.get_executed_ops()


def test_dispatch_modes_see_what_they_see_on_cpu() -> None:
    seen = []
    for device in ("cpu", DEVICE):
        x, weight, bias = (t.to(device).requires_grad_() for t in operands(3))
        seen.append(dispatched(lambda *a: F.linear(*a).sum().backward(), x, weight, bias))
    assert seen[0] == seen[1]


def test_functorch() -> None:
    x, weight, bias = operands(2, 3)
    loss = lambda x, w, b: F.linear(x, w, b).cos().sum()  # noqa: E731
    compare(torch.func.grad(loss, argnums=(0, 1, 2)), x, weight, bias, rtol=1e-5, atol=1e-5, strides=False)
    compare(
        torch.func.vmap(torch.func.grad(loss, argnums=1), in_dims=(0, None, None)), x, weight, bias, rtol=1e-5,
        atol=1e-5, strides=False,
    )  # fmt: skip
    compare(
        lambda *a: torch.func.jvp(F.linear, a, tuple(t.cos() for t in a)), x, weight, bias, rtol=1e-5, atol=1e-5,
        strides=False,
    )  # fmt: skip
    compare(torch.func.hessian(lambda w: loss(x.to(w.device), w, None)), weight, rtol=1e-4, atol=1e-4, strides=False)


def test_forward_mode() -> None:
    x, weight, bias = operands(3)

    def tangent(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x.cos())
            return torch.autograd.forward_ad.unpack_dual(F.linear(dual, weight, bias)).tangent

    compare(tangent, x, weight, bias, rtol=1e-5, atol=1e-5)


def test_subclasses_get_the_composite() -> None:
    class Scaled(torch.Tensor):
        pass

    x, weight, bias = operands(3)
    out = F.linear(x.to(DEVICE).as_subclass(Scaled), weight.to(DEVICE), bias.to(DEVICE))
    assert type(out) is Scaled
    torch.testing.assert_close(out.cpu().as_subclass(torch.Tensor), F.linear(x, weight, bias))


def test_autocast() -> None:
    x, weight, bias = (t.to(DEVICE).requires_grad_() for t in operands(2, 3))
    with torch.autocast(DEVICE, torch.bfloat16):
        out = F.linear(x, weight, bias)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert weight.grad is not None and weight.grad.dtype == torch.float32


def test_integers_are_the_composite() -> None:
    x, weight, bias = (t.mul(10).long() for t in operands(3))
    compare(F.linear, x, weight, bias)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.linear(x[..., :5], w, b),
        lambda x, w, b: F.linear(x, w.double(), b),
        lambda x, w, b: F.linear(x, w, b.double()),
        lambda x, w, b: F.linear(x, w, b[:3]),
        lambda x, w, b: F.linear(x, w[None], b),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, *operands(3))


def test_operands_on_two_devices() -> None:
    x, weight, bias = operands(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.linear(x.to(DEVICE), weight, bias)
