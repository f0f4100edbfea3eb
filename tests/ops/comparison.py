"""Running a function on the CPU and on `neuron` and comparing all that can be seen of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "neuron"


def to_device(value: Any) -> Any:
    """`value` with its tensors copied to `neuron`, of the same strides where these are dense."""
    return tree_map(lambda v: v.detach().to(DEVICE) if isinstance(v, torch.Tensor) else v, value)


@contextmanager
def launches_only() -> Iterator[None]:
    """Fails if an operator inside had to wait for its stream."""
    torch.neuron.clear_op_tracking()
    yield
    fallbacks = torch.neuron.get_fallback_ops()
    assert not fallbacks, f"waited for their stream: {sorted(fallbacks)}"


def assert_same(actual: Any, expected: Any, *, rtol: float = 0, atol: float = 0, strides: bool = True) -> None:
    """Asserts that structures of tensors agree: dtypes, sizes, strides and values (exactly, without a tolerance)."""
    actual_leaves, actual_structure = tree_flatten(actual)
    expected_leaves, expected_structure = tree_flatten(expected)
    assert actual_structure == expected_structure
    for a, e in zip(actual_leaves, expected_leaves):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.dtype == e.dtype and a.shape == e.shape
        if strides:
            assert a.stride() == e.stride()
        torch.testing.assert_close(a.cpu(), e, rtol=rtol, atol=atol, equal_nan=True)


def compare(
    function: Callable[..., Any],
    *args: Any,
    rtol: float = 0,
    atol: float = 0,
    strides: bool = True,
    waits: bool = False,
    **kwargs: Any,
) -> None:
    """Asserts that `function` does on `neuron` what it does on the CPU, to its arguments too, and without waiting."""
    cpu_args, cpu_kwargs = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
    device_args, device_kwargs = to_device((args, kwargs))
    expected = function(*cpu_args, **cpu_kwargs)
    torch.neuron.clear_op_tracking()
    actual = function(*device_args, **device_kwargs)
    fallbacks = torch.neuron.get_fallback_ops()
    assert waits or not fallbacks, f"waited for their stream: {sorted(fallbacks)}"
    assert_same(actual, expected, rtol=rtol, atol=atol, strides=strides)
    assert_same((device_args, device_kwargs), (cpu_args, cpu_kwargs), rtol=rtol, atol=atol, strides=strides)


def compare_errors(function: Callable[..., Any], *args: Any, same_text: bool = True, **kwargs: Any) -> None:
    """Asserts that `function` raises the same error on `neuron`, at the latest when the device is waited for."""
    with pytest.raises(Exception) as expected:
        function(*args, **kwargs)
    device_args, device_kwargs = to_device((args, kwargs))
    with pytest.raises(type(expected.value)) as actual:
        function(*device_args, **device_kwargs)
        torch.neuron.synchronize()
    if same_text:
        first_line = str(expected.value).splitlines()[0]
        assert first_line in str(actual.value)
    assert torch.ones(2, device=DEVICE).sum().item() == 2
