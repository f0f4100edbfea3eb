"""Operators that PyTorch gives a new device wrongly, and kernels whose results need more than a place to lie in."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from comparison import compare, compare_errors

DEVICE = "neuron"
COMPLEX = torch.randn(4, 3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("left", [True, False])
def test_solutions_that_a_kernel_marks_as_conjugated(left: bool) -> None:
    same_values = {"rtol": 1e-4, "atol": 1e-4, "strides": False, "waits": True}
    compare(lambda a, b: torch.linalg.solve(a, b, left=left), COMPLEX, COMPLEX.flip(0), **same_values)
    for adjoint in (True, False):
        compare(
            lambda a, b, adjoint=adjoint: torch.linalg.lu_solve(
                *torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint
            ),
            COMPLEX,
            COMPLEX.flip(0),
            rtol=1e-4,
            atol=1e-4,
            strides=False,
            waits=True,
        )
    # By hand: x a = b.
    a, b = COMPLEX.to(DEVICE), COMPLEX.flip(0).to(DEVICE)
    x = torch.linalg.solve(a, b, left=left)
    assert torch.allclose((a @ x if left else x @ a).cpu(), b.cpu(), atol=1e-4)


def test_kernels_that_refuse_a_new_device() -> None:
    compare(lambda x: x.clone().conj_physical_(), COMPLEX)
    compare(
        lambda x: torch.svd(x, out=(x.new_empty(0), x.real.new_empty(0), x.new_empty(0)))[1],
        COMPLEX[0],
        atol=1e-5,
        waits=True,
    )
    x = torch.tensor([[1, 2, 2], [3, 3, 1]])
    compare(lambda x: torch.mode(x, out=(torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0]))), x)


def test_addr_in_place_does_not_grow() -> None:
    compare_errors(lambda x: x.addr_(x.new_ones(2), x.new_ones(3)), torch.tensor(1.0))
    compare(lambda x: torch.addr(x, x[0], x[:, 0], beta=2, alpha=3), torch.arange(9.0).reshape(3, 3))
    compare(lambda x: x.clone().addr_(x[0], x[:, 0]), torch.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_do_not_warn(loss, reduction: str, capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    value = loss(x, x + 2, reduction=reduction)
    each = 4.0 if loss is F.mse_loss else 1.5
    assert value.tolist() == {"mean": each, "sum": 6 * each, "none": [[each] * 3] * 2}[reduction]
    assert capfd.readouterr().err == ""


def test_fills_that_do_not_fit_raise_at_the_call() -> None:
    compare_errors(lambda x: x.fill_(300), torch.ones(2, dtype=torch.uint8))
    compare_errors(lambda x: torch.full((2,), 1e10, dtype=torch.int, device=x.device), torch.ones(2))
    compare_errors(lambda x: x.fill_(1 + 2j), torch.ones(2))
    x = torch.ones(2, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(RuntimeError, match="without overflow"):
        x.fill_(300)
    assert x.fill_(255).tolist() == [255, 255]


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_sparse_products_keep_what_their_gradients_need(reduce: str) -> None:
    def call(matrix: torch.Tensor, dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense = dense.detach().requires_grad_()
        result = torch.sparse.mm(matrix.to_sparse_csr(), dense, reduce)
        return result.detach(), torch.autograd.grad(result.sum(), dense)[0]

    compare(call, torch.tensor([[0.0, 2, 1], [3, 0, 0], [0, -1, 4]]), torch.arange(6.0).reshape(3, 2), waits=True)


def test_rms_norm_of_an_empty_batch() -> None:
    weight = torch.ones(4, device=DEVICE, requires_grad=True)
    F.rms_norm(torch.ones(0, 4, device=DEVICE), (4,), weight).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [0, 0, 0, 0]


def test_layouts_that_stay_on_the_cpu() -> None:
    x = torch.ones(3, 4, device=DEVICE)
    scales, zeros = torch.ones(3, device=DEVICE), torch.zeros(3, dtype=torch.int64, device=DEVICE)
    for make in (
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
        x.to_mkldnn,
    ):
        with pytest.raises(NotImplementedError, match="cannot lie on a neuron device: make it on the cpu"):
            make()


def test_half_precision_rounds_where_cpu_does() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.bfloat16, torch.float16):
        x, w, b = (torch.randn(*sizes, generator=generator).to(dtype) for sizes in ((3, 6, 64), (40, 64), (40,)))
        compare(F.linear, x, w, b)
        compare(F.linear, x.unsqueeze(0), w, b)
        compare(lambda x, w, b: F.linear(x.mT.contiguous().mT, w, b), x, w, b)
        compare(lambda x, g: torch.ops.aten.mish_backward(g, x), x[0], x[1])


def test_strides_of_results() -> None:
    image = torch.arange(24.0).view(1, 2, 3, 4)
    mask = image > 5
    compare(
        lambda g, m: torch.ops.aten.native_dropout_backward(g.to(memory_format=torch.channels_last), m, 2.0),
        image,
        mask,
    )
    compare(lambda x: F.rrelu(x.t()), torch.arange(-6.0, 6.0).view(3, 4))


def test_a_fill_value_that_does_not_fit_is_refused_at_the_call() -> None:
    compare_errors(lambda x: x.masked_fill(x > 0, torch.tensor(1e300)), torch.arange(3))
