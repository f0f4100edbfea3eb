"""Loss functions: CPU's values, strides, gradients and errors, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 5e-3}
REDUCTIONS = ["none", "mean", "sum"]


def numbers(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5, twice: bool = False) -> None:
    compare(
        lambda *a: with_gradients(function, *a, twice=twice), *inputs, rtol=tolerance, atol=tolerance, strides=not twice
    )


POINTWISE: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1_beta": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.3),
    "huber": lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.7),
    "soft_margin": lambda x, y, reduction: F.soft_margin_loss(x, y.sign(), reduction=reduction),
    "bce": lambda x, y, reduction: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=reduction),
    "bce_with_logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
    "kl_div": lambda x, y, reduction: F.kl_div(x.log_softmax(1), y.softmax(1), reduction=reduction),
    "poisson_nll": lambda x, y, reduction: F.poisson_nll_loss(x, y.abs(), reduction=reduction),
    "gaussian_nll": lambda x, y, reduction: F.gaussian_nll_loss(x, y, y.abs() + 0.1, reduction=reduction),
    "hinge_embedding": lambda x, y, reduction: F.hinge_embedding_loss(x, y.sign(), reduction=reduction),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str, dtype: torch.dtype, reduction: str) -> None:
    x, y = numbers(4, 5).to(dtype), numbers(4, 5, seed=1).to(dtype)
    function = POINTWISE[name]
    waits = name == "gaussian_nll"  # asks whether a variance is negative, on every device
    compare(
        lambda *a: with_gradients(lambda x, y: function(x, y.detach(), reduction=reduction), *a), x, y,
        rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], waits=waits,
    )  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse", "l1", "smooth_l1", "huber", "bce", "bce_with_logits", "kl_div"])
def test_gradients_of_the_target_and_of_gradients(name: str, reduction: str) -> None:
    x, y = numbers(4, 5).double(), numbers(4, 5, seed=1).double()
    function = POINTWISE[name]
    check(lambda x, y: function(x, y, reduction=reduction), x, y, tolerance=1e-9, twice=True)


@pytest.mark.parametrize("name", POINTWISE)
def test_any_strides_and_shapes(name: str) -> None:
    if name in ("kl_div", "gaussian_nll"):
        return
    function = lambda x, y: POINTWISE[name](x, y.detach(), reduction="none")  # noqa: E731
    x, y = numbers(2, 3, 4, 5), numbers(2, 3, 4, 5, seed=1)
    check(function, x.to(memory_format=torch.channels_last), y)
    check(function, x, y.to(memory_format=torch.channels_last))
    check(lambda x, y: function(x[..., ::2], y.transpose(2, 3)[:, :, :3].transpose(2, 3)), x, y)
    check(lambda x, y: function(x[0, 0, 0, 0], y[0, 0, 0, 0]), x, y)
    check(lambda x, y: function(x[:0], y[:0]), x, y)


def test_weights() -> None:
    x, y, w = numbers(4, 5), numbers(4, 5, seed=1).sigmoid(), numbers(5, seed=2).abs()
    for reduction in REDUCTIONS:
        check(lambda x: F.binary_cross_entropy(x.sigmoid(), y.to(x.device), w.to(x.device), reduction=reduction), x)
        check(
            lambda x: F.binary_cross_entropy_with_logits(
                x, y.to(x.device), w.to(x.device), reduction=reduction, pos_weight=w.to(x.device)
            ),
            x,
        )


def test_targets_that_broadcast_or_promote() -> None:
    x, y = numbers(4, 5), numbers(5, seed=1)
    with pytest.warns(UserWarning, match="target size"):
        check(lambda x, y: F.mse_loss(x, y.detach()), x, y)
    with pytest.warns(UserWarning, match="target size"):
        check(lambda x, y: F.huber_loss(x, y.detach()), x, y)
    compare(F.huber_loss, x, numbers(4, 5, seed=1).double(), rtol=1e-5)
    check(lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach()), x, numbers(4, 5, seed=1).double())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(4, 5), (2, 5, 3), (2, 5, 3, 4), (2, 5, 2, 3, 2), (5,)])
def test_cross_entropy(sizes: tuple[int, ...], weighted: bool, reduction: str) -> None:
    x = numbers(*sizes)
    target_sizes = (sizes[0], *sizes[2:]) if len(sizes) > 1 else ()
    target = torch.randint(0, 5, target_sizes, generator=torch.Generator().manual_seed(3))
    weight = numbers(5, seed=4).abs() if weighted else None

    def function(x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        weight = weight if weight is None else weight.detach()
        return F.cross_entropy(x, target, weight, reduction=reduction, ignore_index=2, label_smoothing=0.0)

    check(function, x, target, weight)
    smooth = lambda x, t, w: F.cross_entropy(x, t, None if w is None else w.detach(), label_smoothing=0.1)  # noqa: E731
    # With weights, PyTorch selects those of the targets that count.
    compare(lambda *a: with_gradients(smooth, *a), x, target, weight, rtol=1e-5, atol=1e-5, waits=weighted)
    check(lambda x, p: F.cross_entropy(x, p.detach()), x, numbers(*sizes, seed=5).softmax(0 if len(sizes) == 1 else 1))


def test_cross_entropy_without_reduction_has_gradients_P_31() -> None:
    """gh:microsoft/DirectML#739: another device gave zero gradients."""
    x = numbers(4, 5).to(DEVICE).requires_grad_()
    F.cross_entropy(x, torch.tensor([0, 1, 2, 3]).to(DEVICE), reduction="none").sum().backward()
    assert x.grad is not None and x.grad.abs().sum().item() > 0


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_images_of_classes(dtype: torch.dtype) -> None:
    x = numbers(2, 5, 3, 4).log_softmax(1).to(dtype)
    target = torch.randint(0, 5, (2, 3, 4), generator=torch.Generator().manual_seed(3))
    for reduction in REDUCTIONS:
        check(lambda x, t: F.nll_loss(x, t, reduction=reduction), x, target, tolerance=TOLERANCE[dtype])
    check(
        lambda x, t: F.cross_entropy(x.to(memory_format=torch.channels_last), t), x, target, tolerance=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins(reduction: str) -> None:
    x, y = numbers(4, 5), torch.tensor([1, 2, 0, 4])
    check(lambda x, y: F.multi_margin_loss(x, y, reduction=reduction), x, y)
    check(lambda x, y: F.multi_margin_loss(x, y, p=2, margin=0.5, reduction=reduction), x, y)
    check(lambda x, y: F.multi_margin_loss(x[0], y[0], reduction=reduction), x, y)
    check(lambda x, y: F.multi_margin_loss(x.mT.contiguous().mT, y, reduction=reduction), x, y)
    labels = torch.tensor([[1, 2, -1, 0, 0]] * 4)
    check(lambda x, y: F.multilabel_margin_loss(x, y, reduction=reduction), x, labels)
    check(lambda x, y: F.multilabel_margin_loss(x[0], y[0], reduction=reduction), x, labels)
    check(
        lambda x, y: F.multilabel_soft_margin_loss(x, y.detach(), reduction=reduction), x, numbers(4, 5).gt(0).float()
    )
    check(lambda x, y: F.triplet_margin_loss(x, y, x + y, reduction=reduction), x, numbers(4, 5, seed=1))
    check(
        lambda x, y: F.cosine_embedding_loss(x, y, y[:, 0].sign().detach(), reduction=reduction),
        x,
        numbers(4, 5, seed=1),
    )


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ctc(dtype: torch.dtype, reduction: str, zero_infinity: bool) -> None:
    log_probs = numbers(6, 3, 5).to(dtype)
    targets, lengths = torch.tensor([[1, 2, 3], [4, 1, 2], [2, 2, 0]]), torch.tensor([6, 5, 4])
    for target_lengths in ((3, 1, 2), (0, 3, 2)):

        def function(x: Tensor, t: Tensor, tl: Any = target_lengths) -> Tensor:
            return F.ctc_loss(x.log_softmax(2), t, lengths, torch.tensor(tl), reduction=reduction,
                              zero_infinity=zero_infinity)  # fmt: skip

        check(function, log_probs, targets)
        flat = torch.cat([t[:n] for t, n in zip(targets, target_lengths)])
        check(function, log_probs, flat.int())
    check(lambda x, t: F.ctc_loss(x.log_softmax(1), t[0], (6,), (3,), reduction=reduction), log_probs[:, 0], targets)


def test_modules_train_with_launches_only() -> None:
    x = numbers(4, 5).to(DEVICE).requires_grad_()
    y = numbers(4, 5, seed=1).to(DEVICE)
    with launches_only():
        for name, function in POINTWISE.items():
            if name != "gaussian_nll":
                function(x, y, reduction="mean").backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: F.binary_cross_entropy(x + 5, y.sigmoid()),
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.double()),
        lambda x, y: torch.ops.aten.binary_cross_entropy_with_logits(x, y[0]),
        lambda x, y: torch.ops.aten.binary_cross_entropy_with_logits(x, y.long()),
        lambda x, y: F.huber_loss(x, y, delta=-1.0),
        lambda x, y: F.huber_loss(x.long(), y.long()),
        lambda x, y: F.multi_margin_loss(x, y[:, 0].long() + 9),
        lambda x, y: F.multi_margin_loss(x, y[0].long()),
        lambda x, y: F.multi_margin_loss(x, y[:, 0].long(), p=3),
        lambda x, y: F.multilabel_margin_loss(x, y[0].long()),
        lambda x, y: F.nll_loss(x.view(2, 2, 5, 1), y.long()),
        lambda x, y: F.nll_loss(x.view(2, 2, 5, 1), y.view(2, 2, 5)[:, :1].mT.float()),
        lambda x, y: F.cross_entropy(x.view(2, 2, 5, 1), y.view(2, 2, 5)[:, :1].mT.long() + 9),
        lambda x, y: F.ctc_loss(x[:, None], y[:1].long(), (5,), (2,)),
        lambda x, y: F.ctc_loss(x[:, None], y[:1].long(), (4,), (9,)),
        lambda x, y: F.ctc_loss(x[:, None].half(), y[:1].long(), (4,), (2,)),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, numbers(4, 5), numbers(4, 5, seed=1))
