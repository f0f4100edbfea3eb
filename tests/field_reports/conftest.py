"""Fixtures that compare what `neuron` does with what the same code does on `cpu`, which is the truth here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "neuron"


def significant_strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the dimensions that have more than one element; the others place nothing."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def assert_same(actual: Any, expected: Any, rtol: float | None, atol: float | None, strides: bool) -> None:
    actual_leaves, actual_tree = tree_flatten(actual)
    expected_leaves, expected_tree = tree_flatten(expected)
    assert actual_tree == expected_tree
    for got, want in zip(actual_leaves, expected_leaves):
        if not isinstance(want, torch.Tensor):
            assert type(got) is type(want)
            assert got == want or (got != got and want != want)
            continue
        assert got.device.type == DEVICE
        assert (got.dtype, got.shape, got.layout) == (want.dtype, want.shape, want.layout)
        if strides and want.layout == torch.strided and want.numel() > 0:
            assert significant_strides(got) == significant_strides(want)
        torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=atol, equal_nan=True)


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        result = function(*arguments)
        if arguments[0] != "cpu":
            torch.neuron.synchronize()
        return result, None
    except Exception as error:  # the kind of error is what the caller compares
        return None, error


@pytest.fixture
def on_both() -> Callable[..., None]:
    """`on_both(function)`: function("neuron") gives what function("cpu") gives, or the same type of exception.

    Tensors must agree in dtype, shape, strides and value. With `message`, exceptions must have that text on both.
    """

    def check(
        function: Callable[[str], Any],
        *,
        rtol: float | None = None,
        atol: float | None = None,
        strides: bool = True,
        raises: type[Exception] | None = None,
        message: str | None = None,
    ) -> None:
        expected, expected_error = outcome(function, ("cpu",))
        actual, actual_error = outcome(function, (DEVICE,))
        if expected_error is not None:
            if raises is None and message is None:
                raise AssertionError("the check itself fails on cpu") from expected_error
            assert actual_error is not None, f"cpu raises {expected_error!r}, {DEVICE} raises nothing"
            assert type(actual_error) is type(expected_error)
            assert isinstance(actual_error, raises or Exception)
            if message is not None:
                assert message in str(expected_error)
                assert message in str(actual_error)
            return
        assert raises is None, "cpu raises nothing"
        if actual_error is not None:
            raise actual_error
        assert_same(actual, expected, rtol, atol, strides)

    return check


@pytest.fixture
def parity() -> Callable[..., None]:
    """`parity(function, *inputs)`: function gives on `neuron` copies of the inputs what it gives on the inputs.

    With `grad`, floating inputs require gradients; the gradients for a fixed cotangent must agree too.
    """

    def check(
        function: Callable[..., Any],
        *inputs: Any,
        grad: bool = False,
        rtol: float | None = None,
        atol: float | None = None,
        strides: bool = True,
    ) -> None:
        def run(device: str) -> Any:
            def place(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                differentiable = grad and (value.is_floating_point() or value.is_complex())
                return value.detach().clone().to(device).requires_grad_(differentiable)

            arguments = tree_map(place, list(inputs))
            result = function(*arguments)
            if not grad:
                return result
            outputs = [o for o in tree_flatten(result)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
            generator = torch.Generator().manual_seed(1)
            cotangents = [torch.randn(o.shape, generator=generator, dtype=o.dtype).to(device) for o in outputs]
            torch.autograd.backward(outputs, cotangents)
            leaves = [a for a in tree_flatten(arguments)[0] if isinstance(a, torch.Tensor) and a.requires_grad]
            values = tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, result)
            return values, [leaf.grad for leaf in leaves]

        assert_same(run(DEVICE), run("cpu"), rtol, atol, strides)

    return check


@pytest.fixture
def random_tensor() -> Callable[..., torch.Tensor]:
    """`random_tensor(*shape, dtype=...)` on `cpu`: normal numbers for floats, small integers else; seeded per test."""
    generator = torch.Generator().manual_seed(20)

    def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex128 if dtype.is_complex else torch.float64
            return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool()
        return torch.randint(0, 10, shape, generator=generator).to(dtype)

    return draw
