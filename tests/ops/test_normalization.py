"""Layer, group, batch, instance and RMS normalisation: CPU's values, strides, dtypes, gradients, buffers and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 5e-3}
DTYPES = list(TOLERANCE)


def randn(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def affine(size: int | tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    sizes = (size,) if isinstance(size, int) else size
    return randn(*sizes, seed=1).to(dtype), randn(*sizes, seed=2).to(dtype)


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5, strides: bool = True) -> None:
    compare(lambda *a: with_gradients(function, *a), *inputs, rtol=tolerance, atol=tolerance, strides=strides)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 4, 6)])
def test_layer_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight, bias = affine(shape, dtype)
    x = randn(2, 3, 4, 6, dtype=dtype)
    check(lambda x, w, b: F.layer_norm(x, shape, w, b), x, weight, bias, tolerance=TOLERANCE[dtype])


def test_layer_norm_variants() -> None:
    weight, bias = affine(6)
    x = randn(2, 5, 6)
    check(lambda x: F.layer_norm(x, (6,)), x)
    check(lambda x, w: F.layer_norm(x, (6,), w), x, weight)
    check(lambda x, w, b: F.layer_norm(x.transpose(0, 1), (6,), w, b), x, weight, bias)
    check(lambda x, w, b: F.layer_norm(x.transpose(1, 2)[..., :4], (4,), w[:4], b[:4]), x, weight, bias)
    check(lambda x, w, b: F.layer_norm(x[:0], (6,), w, b), x, weight, bias)
    check(lambda x, w, b: torch.native_layer_norm(x, (6,), w, b, 1e-5)[0], x, weight, bias)
    compare(lambda x, w, b: torch.native_layer_norm(x, (6,), w, b, 1e-5), x, weight, bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_16_bits_with_fp32_weights(dtype: torch.dtype) -> None:
    weight, bias = affine(6)
    tolerance = TOLERANCE[dtype]
    x = randn(4, 6, 3, 2, dtype=dtype)
    running_mean, running_var = torch.zeros(6), torch.ones(6)
    check(lambda x, w, b: F.layer_norm(x.mT.mT.transpose(1, 3), (6,), w, b), x, weight, bias, tolerance=tolerance)
    check(lambda x, w, b: F.group_norm(x, 3, w, b), x, weight, bias, tolerance=tolerance)
    for training in (True, False):
        check(
            lambda x, w, b, m, v, t=training: F.batch_norm(x, m.detach(), v.detach(), w, b, training=t),
            x, weight, bias, running_mean, running_var, tolerance=tolerance,
        )  # fmt: skip


def test_layer_norm_twice_and_forward_mode() -> None:
    weight, bias = affine(6, torch.float64)
    x = randn(3, 6, dtype=torch.float64)
    compare(
        lambda *a: with_gradients(lambda x, w, b: F.layer_norm(x, (6,), w, b), *a, twice=True), x, weight, bias,
        rtol=1e-10, atol=1e-10, strides=False,
    )  # fmt: skip
    jvp = torch.func.jvp
    assert_same(
        jvp(lambda x: F.layer_norm(x, (6,)), (x.to(DEVICE),), (x.cos().to(DEVICE),)),
        jvp(lambda x: F.layer_norm(x, (6,)), (x,), (x.cos(),)), rtol=1e-10, atol=1e-10,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (2, 6, 4, 3), (2, 6, 2, 3, 4)])
def test_group_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight, bias = affine(6, dtype)
    x = randn(*shape, dtype=dtype)
    check(lambda x, w, b: F.group_norm(x, 3, w, b), x, weight, bias, tolerance=TOLERANCE[dtype])
    check(lambda x: F.group_norm(x, 2), x, tolerance=TOLERANCE[dtype])


def test_group_norm_of_any_strides() -> None:
    weight, bias = affine(6)
    x = randn(2, 6, 4, 4)
    function = lambda x, w, b: F.group_norm(x, 3, w, b)  # noqa: E731
    check(lambda x, w, b: function(x.transpose(2, 3), w, b), x, weight, bias)
    check(lambda x, w, b: function(x[:, :, ::2, 1:], w, b), x, weight, bias)
    check(lambda x, w, b: function(x.view(2, 4, 6, 4).transpose(1, 2), w, b), x, weight, bias)
    compare(function, x.to(memory_format=torch.channels_last), weight, bias, rtol=1e-5, atol=1e-5)
    # PyTorch makes this device's gradients contiguous before the kernel sees them.
    check(function, x.to(memory_format=torch.channels_last), weight, bias, strides=False)
    check(function, x[:0], weight, bias)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 4), (2, 6, 4, 3), (2, 6, 2, 3, 4)])
def test_batch_norm(shape: tuple[int, ...], dtype: torch.dtype, training: bool) -> None:
    weight, bias = affine(6, dtype)
    mean, var = randn(6, seed=3, dtype=dtype), randn(6, seed=4, dtype=dtype).abs() + 0.5

    def function(x: Tensor, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        m, v = m.detach().clone(), v.detach().clone()
        return F.batch_norm(x, m, v, w, b, training=training), m, v

    check(function, randn(*shape, dtype=dtype), weight, bias, mean, var, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_any_strides(training: bool) -> None:
    weight, bias = affine(6)
    mean, var = randn(6, seed=3), randn(6, seed=4).abs() + 0.5

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, mean.to(x.device), var.to(x.device), w, b, training=training)

    x = randn(2, 6, 4, 4)
    check(function, x.to(memory_format=torch.channels_last), weight, bias)
    check(lambda x, w, b: function(x.transpose(2, 3)[..., ::2], w, b), x, weight, bias)
    check(function, randn(2, 6, 3, 4, 4).to(memory_format=torch.channels_last_3d), weight, bias)


def test_batch_norm_without_statistics_or_weights() -> None:
    x = randn(4, 3, 5)
    check(lambda x: F.batch_norm(x, None, None, training=True), x)
    check(lambda x: F.instance_norm(x), x)
    weight, bias = affine(3)
    check(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, weight, bias)


def test_batch_norm_twice() -> None:
    weight, bias = affine(3, torch.float64)
    x = randn(4, 3, 5, dtype=torch.float64)
    compare(
        lambda *a: with_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), *a, twice=True), x, weight,
        bias, rtol=1e-9, atol=1e-9, strides=False,
    )  # fmt: skip


def test_batch_norm_operators() -> None:
    aten = torch.ops.aten
    x, (weight, bias), mean, var = randn(4, 3, 5), affine(3), torch.zeros(3), torch.ones(3)
    arguments = (x, weight, bias, mean, var)
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    compare(lambda *a: torch.native_batch_norm(*a, True, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: torch.native_batch_norm(*a, False, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: aten._native_batch_norm_legit(*a, True, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: aten._native_batch_norm_legit(*a[:3], True, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: aten._native_batch_norm_legit_no_training(*a, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: aten._batch_norm_with_update(*a, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda *a: aten._batch_norm_no_update(*a, 0.1, 1e-5), *arguments, **tolerance)
    compare(lambda x, m, v: torch.batch_norm_update_stats(x, m, v, 0.1), x, mean, var, **tolerance)
    compare(
        lambda *a: with_gradients(lambda x, w, b: aten._batch_norm_with_update(x, w, b, *a[3:], 0.1, 1e-5)[0], *a[:3]),
        *arguments, **tolerance,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype: torch.dtype) -> None:
    weight, _ = affine(70, dtype)
    tolerance = TOLERANCE[dtype]
    for x in (randn(3, 5, 70, dtype=dtype), randn(70, dtype=dtype), randn(5, 70, 3, dtype=dtype).transpose(1, 2)):
        check(lambda x, w: F.rms_norm(x, (70,), w), x, weight, tolerance=tolerance)
        check(lambda x: F.rms_norm(x, (70,), eps=1e-3), x, tolerance=tolerance)
    check(lambda x, w: F.rms_norm(x, (2, 35), w.view(2, 35)), randn(4, 2, 35, dtype=dtype), weight, tolerance=tolerance)
    compare(lambda x, w: F.rms_norm(x[:0], (70,), w), randn(3, 70, dtype=dtype), weight)


def test_rms_norm_in_many_threads_and_twice() -> None:
    x, (weight, _) = randn(4096, 67), affine(67)
    check(lambda x, w: F.rms_norm(x, (67,), w), x, weight, tolerance=2e-4)
    x, weight = x[:3].double(), weight.double()
    compare(
        lambda *a: with_gradients(lambda x, w: F.rms_norm(x, (67,), w), *a, twice=True), x, weight,
        rtol=1e-10, atol=1e-10, strides=False,
    )  # fmt: skip


def test_rms_norm_of_mixed_dtypes_is_the_composite() -> None:
    check(lambda x, w: F.rms_norm(x, (6,), w), randn(3, 6, dtype=torch.bfloat16), affine(6)[0], tolerance=2e-2)


def test_modules_train_with_launches_only() -> None:
    model = torch.nn.Sequential(
        torch.nn.BatchNorm2d(4), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm2d(4, affine=True),
        torch.nn.LayerNorm(6), torch.nn.RMSNorm(6),
    ).to(DEVICE)  # fmt: skip
    x = randn(2, 4, 3, 6).to(DEVICE)
    with launches_only():
        model(x).sum().backward()
        model.eval()
        model(x)
    assert {"aten::native_layer_norm", "aten::_fused_rms_norm_backward"} <= set(torch.neuron.get_executed_ops())


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: F.layer_norm(x, (5,)),
        lambda x, w: F.layer_norm(x, ()),
        lambda x, w: F.layer_norm(x, (6,), w[:3]),
        lambda x, w: F.layer_norm(x, (6,), w.double()),
        lambda x, w: F.layer_norm(x.long(), (6,)),
        lambda x, w: F.group_norm(x.mT, 4),
        lambda x, w: F.group_norm(x.mT, 3, w[:3]),
        lambda x, w: F.group_norm(x.mT.long(), 3),
        lambda x, w: F.batch_norm(x.mT, w, w[:3], training=True),
        lambda x, w: F.batch_norm(x.mT, w.double(), w, training=True),
        lambda x, w: F.batch_norm(x.mT.long(), w, w, training=True),
        lambda x, w: F.batch_norm(x[:1, :1, 0], w[:1], w[:1], training=True),
        lambda x, w: F.batch_norm(x.mT, None, None),
        lambda x, w: F.rms_norm(x, (5,)),
        lambda x, w: F.rms_norm(x.long(), (6,)),
        lambda x, w: F.rms_norm(x, (6,), w[:5]),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, randn(2, 3, 6), randn(6))


@pytest.mark.parametrize("weight_of", [torch.zeros, torch.ones])
def test_operands_on_two_devices(weight_of: Callable[..., Tensor]) -> None:
    x = randn(2, 3, 6).to(DEVICE)
    for call in (
        lambda w: F.layer_norm(x, (6,), w),
        lambda w: F.group_norm(x, 3, w[:3]),
        lambda w: F.rms_norm(x, (6,), w),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            call(weight_of(6))
