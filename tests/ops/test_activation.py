"""Activation functions that are not structured: CPU's values, strides, gradients and errors, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import compare, compare_errors
from gradients import with_gradients
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 5e-3}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "logit": lambda x: torch.logit(x.sigmoid(), 1e-3),
    "prelu": lambda x: F.prelu(x, x.flatten()[:1].detach()),
    "prelu_of_channels": lambda x: F.prelu(x, x.flatten()[: x.size(1)].detach()),
    "glu": lambda x: F.glu(x, 1),
    "glu_last": F.glu,
}


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5, twice: bool = False) -> None:
    compare(
        lambda *a: with_gradients(function, *a, twice=twice), *inputs, rtol=tolerance, atol=tolerance, strides=not twice
    )


def image(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    check(ACTIVATIONS[name], image(dtype), tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_any_strides_and_second_derivatives(name: str) -> None:
    function = ACTIVATIONS[name]
    check(function, image().to(memory_format=torch.channels_last))
    check(lambda x: function(x[..., ::2].transpose(0, 2)), image().transpose(0, 1))
    check(function, image(torch.float64), tolerance=1e-9, twice=True)


def test_weight_of_prelu() -> None:
    check(F.prelu, image(), torch.tensor([0.3]))
    check(F.prelu, image(), torch.tensor([0.3, -0.2, 0.1, 0.5]))


@pytest.mark.parametrize("function", [F.hardswish, F.relu6, lambda x, inplace: F.hardtanh(x, -0.5, 0.5, inplace)])
def test_in_place(function: Callable[..., Tensor]) -> None:
    compare(lambda x: function(x, inplace=True), image())
    check(lambda x: function(x * 2, inplace=True), image())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.hardswish(x.long()),
        lambda x: F.logsigmoid(x.long()),
        lambda x: F.prelu(x, x[0, 0, 0, :3]),
        lambda x: torch.ops.aten.glu_backward(x, x, 1),
        lambda x: F.glu(x[:, :3], 1),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, image())
