"""Products of int8 and of float8 matrices: exact products, float32 sums."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only, to_device
from torch import Tensor

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def int8(*size: int) -> Tensor:
    return torch.randint(-128, 128, size, dtype=torch.int8, generator=torch.Generator().manual_seed(1))


def float8(dtype: torch.dtype, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("size", [(1, 1, 1), (17, 1024, 5), (64, 64, 64), (3, 0, 5), (0, 4, 5)], ids=str)
def test_int8_is_exact_to_2_to_the_24(size: tuple[int, int, int]) -> None:
    rows, inner, columns = size
    a, b = int8(rows, inner), int8(columns, inner).t()
    with launches_only():
        result = torch._int_mm(a.to(DEVICE), b.to(DEVICE))
    assert result.dtype == torch.int32
    assert result.tolist() == (a.long() @ b.long()).tolist()
    compare(torch._int_mm, a, b)
    compare(lambda a, b, out: torch._int_mm(a, b, out=out), a, b, torch.zeros(rows, columns, dtype=torch.int32))


def test_int8_beyond_2_to_the_24_is_rounded_to_float32() -> None:
    a = torch.full((1, 4096), 127, dtype=torch.int8)
    a[0, 0] = 126
    exact = 127 * 127 * 4095 + 126 * 127
    assert exact != int(torch.tensor(exact).float())
    result = torch._int_mm(a.to(DEVICE), torch.full((4096, 1), 127, dtype=torch.int8, device=DEVICE))
    assert result.item() == int(torch.tensor(exact).float())


@pytest.mark.parametrize(
    ("a", "b"),
    [(int8(2, 3), int8(4, 3)), (int8(2, 3), int8(3)), (int8(2, 3), int8(3, 2).int()), (int8(2, 3).float(), int8(3, 2))],
)
def test_int8_errors(a: Tensor, b: Tensor) -> None:
    compare_errors(torch._int_mm, a, b)
    compare_errors(lambda a, b, out: torch._int_mm(a, b, out=out), a, b, torch.zeros(2, 2, dtype=torch.int32))


def test_int8_out_of_another_size_or_dtype() -> None:
    for out in (torch.zeros(3, 3, dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int64)):
        compare_errors(lambda a, b, out: torch._int_mm(a, b, out=out), int8(2, 3), int8(3, 2), out)


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtypes", [(a, b) for a in FLOAT8 for b in FLOAT8], ids=str)
@pytest.mark.parametrize("by_rows", [False, True], ids=["one scale", "scales of rows"])
def test_float8(dtypes: tuple[torch.dtype, torch.dtype], by_rows: bool, out_dtype: torch.dtype) -> None:
    a, b = float8(dtypes[0], 24, 48), float8(dtypes[1], 16, 48).t()
    scale_a = torch.linspace(0.5, 2, 24)[:, None] if by_rows else torch.tensor(0.5)
    scale_b = torch.linspace(0.25, 1, 16)[None] if by_rows else torch.tensor([[3.0]])
    bias = torch.linspace(-1, 1, 16)
    truth = (a.double() @ b.double()) * scale_a * scale_b + bias
    with launches_only():
        result = torch._scaled_mm(
            a.to(DEVICE),
            b.to(DEVICE),
            scale_a.to(DEVICE),
            scale_b.to(DEVICE),
            bias=bias.to(DEVICE),
            out_dtype=out_dtype,
        )
    assert result.is_contiguous()
    torch.testing.assert_close(result.cpu(), truth.to(out_dtype))


def test_float8_result_is_divided_by_its_scale() -> None:
    a, b, one = float8(FLOAT8[0], 8, 16), float8(FLOAT8[0], 8, 16).t(), torch.tensor(1.0)
    compare(
        lambda a, b, one, scale: torch._scaled_mm(a, b, one, one, scale_result=scale, out_dtype=FLOAT8[0]).float(),
        a,
        b,
        one,
        torch.tensor(8.0),
    )


def test_float8_without_products_is_zero() -> None:
    one = torch.ones((), device=DEVICE)
    a, b = (torch.empty(size, dtype=FLOAT8[0], device=DEVICE) for size in ((3, 0), (0, 2)))
    assert torch._scaled_mm(a, b, one, one, out_dtype=torch.float32).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, s: torch._scaled_mm(a, b[:3], s, s),
        lambda a, b, s: torch._scaled_mm(a.bfloat16(), b.bfloat16(), s, s),
        lambda a, b, s: torch._scaled_mm(a, b, s.expand(2, 2).contiguous(), s),
        lambda a, b, s: torch._scaled_mm(a, b, s, s, bias=torch.ones(3, device=s.device)),
        lambda a, b, s: torch._scaled_mm(a, b, s, s, out_dtype=torch.int32),
        lambda a, b, s: torch._scaled_mm(a, b, s, s, scale_result=s.expand(2).contiguous(), out_dtype=a.dtype),
        lambda a, b, s: torch._scaled_mm(a[0], b, s, s),
    ],
)
def test_float8_errors(call: Callable[..., Tensor]) -> None:
    compare_errors(call, float8(FLOAT8[0], 4, 8), float8(FLOAT8[0], 8, 4), torch.tensor(1.0))


@pytest.mark.parametrize("by_rows", [False, True], ids=["one scale", "scales of rows"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_scaled_mm_of_functional(by_rows: bool, with_bias: bool) -> None:
    a, b = float8(FLOAT8[0], 24, 48), float8(FLOAT8[0], 16, 48).t()
    scale_a = torch.linspace(0.5, 2, 24)[:, None] if by_rows else torch.tensor(0.5)
    scale_b = torch.linspace(0.25, 1, 16)[None] if by_rows else torch.tensor(3.0)
    recipe = F.ScalingType.RowWise if by_rows else F.ScalingType.TensorWise
    bias = torch.linspace(-1, 1, 16).bfloat16() if with_bias else None
    truth = (a.double() @ b.double()) * scale_a * scale_b + (0 if bias is None else bias)
    a, b, scale_a, scale_b, bias = to_device((a, b, scale_a, scale_b, bias))
    with launches_only():
        result = F.scaled_mm(a, b, scale_a, recipe, scale_b, recipe, bias=bias)
    torch.testing.assert_close(result.cpu(), truth.bfloat16())


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, s: F.scaled_mm(a, b, s, F.ScalingType.RowWise, s, F.ScalingType.RowWise),
        lambda a, b, s: F.scaled_mm(a, b, s, F.ScalingType.BlockWise1x32, s, F.ScalingType.BlockWise1x32),
        lambda a, b, s: F.scaled_mm(a, b[:3], s, F.ScalingType.TensorWise, s, F.ScalingType.TensorWise),
        lambda a, b, s: F.scaled_mm(a.float(), b.float(), s, F.ScalingType.TensorWise, s, F.ScalingType.TensorWise),
    ],
)
def test_scaled_mm_of_functional_errors(call: Callable[..., Tensor]) -> None:
    compare_errors(call, float8(FLOAT8[0], 4, 8), float8(FLOAT8[0], 8, 4), torch.tensor(1.0))


# AWS Neuron documentation, "Data types": before trn3 float8_e4m3 is the one of IEEE, with infinities and 240 at most.
@pytest.mark.parametrize(
    ("instance", "greatest", "warns"),
    [("trn2.3xlarge", 256, True), ("trn2.3xlarge", 240, False), ("trn3-gen1-ultraserver", 448, False)],
)
def test_values_that_the_chip_does_not_have(instance: str, greatest: int, warns: bool) -> None:
    code = f"""
import torch
a = torch.full((16, 16), {greatest}.0).to(torch.float8_e4m3fn).to("neuron")
one = torch.ones((), device="neuron")
print(torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.float32)[0, 0].item())
"""
    environment = {**os.environ, "TORCHNEURON_INSTANCE": instance}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert float(result.stdout) == 16 * greatest**2, result.stderr
    assert ("beyond 240" in result.stderr) == warns
