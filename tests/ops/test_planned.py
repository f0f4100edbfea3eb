"""Operators whose results a run on stand-ins plans: values, dtypes and strides of the CPU, without waiting, at the
first call and when the plan is remembered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

aten = torch.ops.aten


def numbers(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(high: int, *sizes: int) -> Tensor:
    return torch.randint(high, sizes, generator=torch.Generator().manual_seed(0))


SQUARE = numbers(2, 4, 4)
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(4)
FACTOR = torch.linalg.cholesky(POSITIVE)
WIDE = numbers(2, 6, 4)
REFLECTORS, TAU = torch.geqrf(WIDE)
IMAGE, VOLUME = numbers(2, 4, 6, 6), numbers(2, 3, 6, 6, 6)
COMPLEX = torch.complex(numbers(3, 4), numbers(3, 4, seed=1))
SCALE, ZERO = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "ilshift": (lambda a, b: (a.__ilshift__(b), a.clone().__ilshift__(2)), (integers(9, 5), integers(3, 5))),
    "irshift": (lambda a, b: (a.__irshift__(b), a.clone().__irshift__(1)), (integers(9, 5), integers(3, 5))),
    "add_relu": (lambda a, b: (torch._add_relu(a, b), torch._add_relu_(a, b)), (numbers(3, 4), numbers(4, seed=1))),
    "addbmm": (lambda a, b, c: torch.addbmm(a, b, c, beta=2), (numbers(4, 5), numbers(2, 4, 3), numbers(2, 3, 5))),
    "addr": (lambda a, b, c: torch.addr(a, b, c, alpha=3), (numbers(4, 5), numbers(4), numbers(5))),
    "addr_": (lambda a, b, c: a.addr_(b, c), (numbers(4, 5), numbers(4), numbers(5))),
    "angle": (
        lambda z, x, n: (z.angle(), z.T.angle(), x.angle(), n.angle()),
        (COMPLEX, numbers(3), integers(5, 3) - 2),
    ),
    "complex": (lambda a, b: torch.complex(a, b), (numbers(3, 4).T, numbers(3, seed=1))),
    "polar": (lambda a, b: torch.polar(a, b), (numbers(3, 4).T, numbers(3, seed=1))),
    "conj_physical": (lambda z: (torch.conj_physical(z.T), z.conj_physical_()), (COMPLEX,)),
    "conj": (lambda z: (z.conj().angle(), z.conj().resolve_conj(), z.imag.neg().mvlgamma(1)), (COMPLEX,)),
    "remainder": (lambda x: torch.remainder(5, x), (integers(5, 6) + 1,)),
    "logit": (lambda x: (x.logit_(1e-3), x.logit()), (torch.rand(4, generator=torch.Generator().manual_seed(0)),)),
    "aminmax": (lambda x: (aten._aminmax(x), aten._aminmax(x, 1, True)), (numbers(3, 4),)),
    "mode": (lambda x: torch.mode(x, 1, out=(x.new_empty(0), integers(1, 0).to(x.device))), (numbers(3, 4).round(),)),
    "nonzero_static": (lambda x: torch.nonzero_static(x, size=4, fill_value=-7), (integers(2, 3, 4),)),
    "histogram": (lambda x: torch.histogram(x, 5, range=(-1.0, 2.0)), (numbers(20),)),
    "histogram edges": (lambda x, e: torch.histogram(x, e, density=True), (numbers(20), torch.arange(-2.0, 3))),
    "histogramdd": (lambda x: tuple(torch.histogramdd(x, [3, 4], range=[-2.0, 2.0, -1.0, 1.0])), (numbers(20, 2),)),
    "search": (
        lambda s: (torch.searchsorted(s, 0.3), torch.bucketize(0.3, s, right=True)),
        (numbers(9).sort().values,),
    ),
    "pdist": (lambda x: with_gradients(F.pdist, x), (numbers(5, 3),)),
    "bag": (
        lambda w, i: with_gradients(lambda w: F.embedding_bag(i, w, mode="mean", padding_idx=1), w),
        (numbers(6, 3), integers(6, 4, 5)),
    ),
    "weight_norm": (
        lambda v, g: with_gradients(lambda v, g: torch._weight_norm(v, g, 0), v, g),
        (numbers(4, 3, 5), numbers(4, 1, 1)),
    ),
    "weight_norm of the last": (
        lambda v, g: with_gradients(lambda v, g: torch._weight_norm(v, g, 2), v, g),
        (numbers(4, 3, 5), numbers(1, 1, 5)),
    ),
    "glu in forward mode": (
        lambda x, t: torch.func.jvp(lambda x: F.glu(x, 1), (x,), (t,)),
        (numbers(3, 4), numbers(3, 4, seed=1)),
    ),
    "dilated": (
        lambda x, w: aten.slow_conv_dilated2d(x, w, [3, 3], None, [1, 1], [2, 2], [2, 2]),
        (IMAGE, numbers(5, 4, 3, 3)),
    ),
    "volumes": (
        lambda x, w: aten.slow_conv3d_forward(x, w, [2, 2, 2], None, [1] * 3, [1] * 3),
        (VOLUME, numbers(4, 3, 2, 2, 2)),
    ),
    "transposed": (
        lambda x, w: aten.slow_conv_transpose3d(x, w, [2] * 3, None, [2] * 3),
        (VOLUME, numbers(3, 2, 2, 2, 2)),
    ),
    "narrow_copy": (lambda x: torch.narrow_copy(x, 1, 1, 2), (numbers(3, 4),)),
    "cholesky_solve": (lambda b, f: torch.cholesky_solve(b, f), (numbers(2, 4, 3), FACTOR)),
    "geqrf": (lambda a: torch.geqrf(a), (WIDE,)),
    "householder": (lambda a, t: torch.linalg.householder_product(a, t), (REFLECTORS, TAU)),
    "ormqr": (lambda a, t, c: torch.ormqr(a, t, c, transpose=True), (REFLECTORS, TAU, numbers(2, 6, 3))),
    "solve_triangular": (
        lambda f, b: (
            torch.linalg.solve_triangular(f, b, upper=False),
            torch.linalg.solve_triangular(f.mT, b, upper=True),
        ),
        (FACTOR, numbers(2, 4, 3)),
    ),
    "matrix_exp": (lambda a: with_gradients(torch.linalg.matrix_exp, a), (SQUARE,)),
    "lstsq": (lambda a, b: tuple(torch.linalg.lstsq(a, b)), (WIDE, numbers(2, 6, 2))),
    "lstsq by QR": (lambda a, b: tuple(torch.linalg.lstsq(a, b, driver="gels")), (WIDE, numbers(2, 6, 2))),
    "fake quantize": (
        lambda x: with_gradients(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), x),
        (numbers(9),),
    ),
    "fake quantize by tensors": (
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s[:1], z[:1].int(), -128, 127),
        (numbers(3, 4), SCALE, ZERO),
    ),
    "fake quantize channels": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z.int(), 0, -128, 127),
        (numbers(3, 4), SCALE, ZERO),
    ),
    "learned steps": (
        lambda x, s, z: with_gradients(
            lambda x, s, z: torch._fake_quantize_learnable_per_channel_affine(x, s, z, 0, 0, 15), x, s, z.float()
        ),
        (numbers(3, 4), SCALE, ZERO),
    ),
    "jagged": (
        lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [3], 0.5),
        (numbers(6, 2), torch.tensor([0, 2, 2, 5, 6])),
    ),
}


# LAPACK's rounding depends on where in memory a matrix lies.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    compare(function, *inputs, **TOLERANCE)
    if len(inputs) == 1 and inputs[0].dim() == 2:  # other values, now by the plan
        compare(function, inputs[0].flip(0), **TOLERANCE)


OUT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "polar": (lambda a, b, out: torch.polar(a, b, out=out), (numbers(3, 4), numbers(3, 4, seed=1))),
    "adaptive_avg_pool2d": (lambda x, out: aten.adaptive_avg_pool2d.out(x, [2, 3], out=out), (IMAGE,)),
    "binary_cross_entropy": (
        lambda x, y, out: aten.binary_cross_entropy.out(x, y, reduction=0, out=out),
        (numbers(4).sigmoid(), numbers(4, seed=1).sigmoid()),
    ),
    "col2im": (lambda x, out: aten.col2im.out(x, [4, 4], [2, 2], [1, 1], [0, 0], [2, 2], out=out), (numbers(1, 8, 4),)),
    "hardswish": (lambda x, out: aten.hardswish.out(x, out=out), (numbers(9),)),
    "huber_loss": (lambda x, y, out: aten.huber_loss.out(x, y, 0, out=out), (numbers(9), numbers(9, seed=1))),
    "mse_loss_backward": (
        lambda g, x, y, out: aten.mse_loss_backward.grad_input(g, x, y, 1, grad_input=out),
        (torch.tensor(2.0), numbers(9), numbers(9, seed=1)),
    ),
    "reflection_pad2d": (lambda x, out: aten.reflection_pad2d.out(x, [1, 1, 2, 0], out=out), (IMAGE,)),
    "solve_triangular": (
        lambda f, b, out: torch.linalg.solve_triangular(f, b, upper=False, out=out),
        (FACTOR, numbers(2, 4, 3)),
    ),
    "range": (lambda out: torch.range(0, 4, 0.5, out=out), ()),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name: str) -> None:
    function, inputs = OUT[name]
    dtype = torch.cfloat if name == "polar" else torch.float32
    for _ in range(2):
        compare(function, *inputs, out=torch.empty(0, dtype=dtype), **TOLERANCE)
    shape = function(*inputs, out=torch.empty(0, dtype=dtype)).shape
    compare(function, *inputs, out=torch.empty((*shape, 2), dtype=dtype)[..., 0], **TOLERANCE)


def test_resizing_what_holds_elements_warns_each_time() -> None:
    for _ in range(3):
        out = torch.empty(2, device=DEVICE)
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"), launches_only():
            torch.linalg.solve_triangular(FACTOR.to(DEVICE), torch.ones(2, 4, 1, device=DEVICE), upper=False, out=out)
        assert out.shape == (2, 4, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.neuron.synchronize()


def test_arguments_of_other_kinds_are_told_apart() -> None:
    x = numbers(3, 4)
    for out_int32 in (False, True):
        compare(lambda s: torch.searchsorted(s, 0.3, out_int32=out_int32), x.sort(1).values[0])
    for dtype in (torch.float32, torch.float64):
        compare(lambda x: torch.angle(x), x.to(dtype))
    for p in (1.0, 2.0, 3.0):
        compare(lambda x: torch.pdist(x, p), x)
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float64)
        try:
            compare(lambda n: torch.angle(n), integers(4, 3))
        finally:
            torch.set_default_dtype(torch.float32)
    compare(lambda n: torch.angle(n), integers(4, 3))


def test_one_tensor_in_two_places() -> None:
    compare(lambda x: torch.addr(x, x[0], x[0]), numbers(4, 4))
    compare(lambda x: (x.__ilshift__(x), x), integers(3, 5))
    compare(lambda x: (torch._add_relu_(x, x), x), numbers(5))


def test_errors_that_the_geometry_shows_are_raised_at_the_call() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="must be batches of square matrices"):
        torch.linalg.matrix_exp(x)
    with pytest.raises(RuntimeError, match="expanded size of the tensor"):
        torch.addr(x, x[0], x[0])
    with pytest.raises(RuntimeError, match="same device"):
        torch.addr(x, torch.ones(2), x[0])
    compare_errors(lambda x: torch.pdist(x), numbers(3))
    compare_errors(lambda x: torch.polar(x, x.long()), numbers(3))
    compare_errors(lambda x: torch.polar(x, x, out=torch.empty_like(x)), numbers(3))


def test_errors_of_values_are_raised_at_the_next_synchronise() -> None:
    compare_errors(lambda x: torch._assert_async(x, "x is 0"), torch.tensor(0.0))
    with launches_only():
        torch._assert_async(torch.ones((), device=DEVICE), "x is 0")


NOT_A_NUMBER = torch.full((3, 3), torch.nan)


# As on CUDA, whose documentation says of each that it waits, so that a program can catch the error and try again.
@pytest.mark.parametrize(
    ("factorise", "good", "bad"),
    [
        (lambda a: (torch.cholesky(a), torch.cholesky(a, upper=True)), POSITIVE, -POSITIVE),
        (torch.linalg.cholesky, POSITIVE, -POSITIVE),
        (torch.cholesky_inverse, FACTOR, torch.zeros(3, 3)),
        (torch.linalg.inv, SQUARE, torch.zeros(3, 3)),
        (lambda a: torch.linalg.solve(a, a), SQUARE, torch.zeros(3, 3)),
        (torch.linalg.lu_factor, SQUARE, torch.zeros(3, 3)),
        (lambda a: tuple(torch.linalg.eigh(a)), POSITIVE, NOT_A_NUMBER),
        (torch.linalg.eigvalsh, POSITIVE, NOT_A_NUMBER),
        (lambda a: tuple(torch.linalg.svd(a)), SQUARE, NOT_A_NUMBER),
        (torch.linalg.svdvals, WIDE, NOT_A_NUMBER),
        (lambda a: (*torch.linalg.eig(a), torch.linalg.eigvals(a)), SQUARE, NOT_A_NUMBER),
    ],
)
def test_factorisations_raise_at_the_call(factorise: Callable[..., Any], good: Tensor, bad: Tensor) -> None:
    compare(factorise, good, waits=True, **TOLERANCE)
    with pytest.raises(RuntimeError) as expected:
        factorise(bad)
    with pytest.raises(type(expected.value)) as error:
        factorise(bad.to(DEVICE))
    assert str(error.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_observers_and_rank_wait_only_where_sizes_depend_on_values() -> None:
    def observed(x: Tensor, lowest: Tensor, highest: Tensor, scale: Tensor, zero: Tensor, rows: bool) -> Tensor:
        on = torch.ones(1, dtype=torch.long, device=x.device)
        return torch.fused_moving_avg_obs_fake_quant(
            x, on, on, lowest, highest, scale, zero, 0.01, 0, 255, 0, per_row_fake_quant=rows
        )

    x, zero = numbers(3, 4), torch.zeros(1, dtype=torch.int)
    one = torch.full((1,), float("inf"))
    compare(observed, x, one, -one, torch.ones(1), zero, False)
    compare(observed, x, one.expand(3).clone(), -one.expand(3).clone(), torch.ones(3), zero.expand(3).clone(), True)
    compare(observed, x, torch.ones(0), torch.ones(0), torch.ones(3), zero.expand(3).clone(), True, waits=True)
    compare(
        lambda a, b: tuple(torch.linalg.lstsq(a, b, driver="gelsd")), WIDE, numbers(2, 6, 2), waits=True, **TOLERANCE
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str) -> None:
    x, lengths = numbers(6, 4), torch.tensor([1, 0, 3, 2])
    for initial in (None, 0.5):
        compare(
            lambda x, n: with_gradients(lambda x: torch.segment_reduce(x, reduce, lengths=n, initial=initial), x),
            x,
            lengths,
        )
    rows = torch.tensor([[2, 2], [1, 3], [0, 4], [4, 0], [1, 3], [2, 2]])
    compare(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=1), x, rows.int())
    ends = torch.tensor([0, 1, 1, 4, 6])
    compare(lambda x, n: with_gradients(lambda x: torch.segment_reduce(x, reduce, offsets=n), x), x.double(), ends)


def test_errors_of_segments() -> None:
    x, lengths = numbers(6, 4), torch.tensor([1, 0, 3, 2])
    compare_errors(lambda x, n: torch.segment_reduce(x, "median", lengths=n), x, lengths)
    compare_errors(lambda x, n: torch.segment_reduce(x, "sum", lengths=n + 1), x, lengths)
    compare_errors(lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=1), x, lengths)
    compare_errors(lambda x, n: torch.segment_reduce(x, "sum", lengths=n.float()), x, lengths)
    compare_errors(lambda x: torch.segment_reduce(x, "sum"), x)
