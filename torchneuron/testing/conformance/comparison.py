"""The same call on two devices: arguments moved, results and errors compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from ... import neuron
from .outcomes import Mismatch, first_line

DEVICE = torch.device("neuron:0")
Call = Callable[[], Any]


def compare_calls(
    on_cpu: Call, on_neuron: Call, *, values: bool = True, strides: bool = True, tolerance: float | None = None
) -> bool:
    """Makes both calls after the same seed and raises `Mismatch` unless they return or raise the same.

    `values=False` compares only the geometry, for results that PyTorch leaves undefined. `tolerance`, relative and
    absolute, is that of torch.testing.assert_close for the dtype by default. Returns whether the calls returned.
    """
    seed()
    expected, cpu_error = _attempt(on_cpu)
    seed()
    result, neuron_error = _attempt(on_neuron)
    if cpu_error is not None or neuron_error is not None:
        compare_errors(cpu_error, neuron_error)
        return False
    compare_results(expected, result, values=values, strides=strides, tolerance=tolerance)
    return True


def compare_errors(expected: Exception | None, error: Exception | None) -> None:
    """Raises `Mismatch` unless both errors are of one type and say the same, but for the name of the device."""
    if expected is None:
        assert error is not None
        raise Mismatch(f"raises {first_line(error)}") from error
    if error is None:
        raise Mismatch(f"does not raise {first_line(expected)}")
    same_type = type(expected) is type(error)
    if not same_type or _without_devices(str(expected)) != _without_devices(str(error)):
        raise Mismatch(f"raises {first_line(error)} instead of {first_line(expected)}")


def compare_results(
    expected: Any, result: Any, *, values: bool = True, strides: bool = True, tolerance: float | None = None
) -> None:
    """Raises `Mismatch` unless the results are equal trees of tensors and other values."""
    expected_leaves, expected_tree = tree_flatten(expected)
    leaves, tree = tree_flatten(result)
    if len(leaves) != len(expected_leaves):
        raise Mismatch(f"returns {tree} instead of {expected_tree}")
    for one, other in zip(expected_leaves, leaves):
        if isinstance(one, torch.Tensor):
            _compare_tensors(one, other, values, strides, tolerance)
        elif one != other and not (one != one and other != other):
            if isinstance(one, float) and isinstance(other, float) and abs(one - other) <= 1e-6 * abs(one):
                continue
            raise Mismatch(f"returns {other!r} instead of {one!r}")


def move(tree: Any) -> Any:
    """A copy of `tree` with its tensors on `neuron`, of the same strides; a device in it becomes `neuron` too."""
    return tree_map(_move_leaf, tree)


def copy(tree: Any) -> Any:
    """A copy of `tree` on the CPU, of the same strides."""
    return tree_map(
        lambda leaf: _copy_to(leaf, leaf.device) if isinstance(leaf, torch.Tensor) and not leaf.is_meta else leaf, tree
    )


def seed() -> None:
    """As torch.manual_seed(0) for both devices, without the millisecond that it takes for those that are not here."""
    torch.default_generator.manual_seed(0)
    neuron.manual_seed_all(0)


def _attempt(call: Call) -> tuple[Any, Exception | None]:
    try:
        result = call()
        neuron.synchronize()
    except Exception as error:
        return None, error
    return result, None


def _move_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf if leaf.is_meta else _copy_to(leaf, DEVICE)
    if isinstance(leaf, torch.device) or leaf == "cpu":
        return DEVICE
    return leaf


def _copy_to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    source = tensor.detach()
    if source.layout != torch.strided or source.is_nested or source.is_quantized:
        made = source.clone() if device.type == "cpu" else source.to(device)
    else:
        # With all of its memory, which as_strided sees; a lazily conjugated or negated tensor stays one.
        memory = torch.empty(0, dtype=torch.uint8).set_(source.untyped_storage())
        made = torch.empty(0, dtype=source.dtype, device=device)
        made.set_(
            memory.to(device, copy=True).untyped_storage(), source.storage_offset(), source.size(), source.stride()
        )
        made = made.conj() if source.is_conj() else made
        made = torch._neg_view(made) if source.is_neg() else made
    return made.requires_grad_(tensor.requires_grad)


def _compare_tensors(expected: torch.Tensor, result: Any, values: bool, strides: bool, tolerance: float | None) -> None:
    if not isinstance(result, torch.Tensor):
        raise Mismatch(f"returns {type(result).__name__} instead of a tensor")
    if result.device.type != (DEVICE.type if expected.device.type == "cpu" else expected.device.type):
        raise Mismatch(f"returns a tensor on {result.device}")
    for name in ("dtype", "layout", "requires_grad"):
        if getattr(expected, name) != getattr(result, name):
            raise Mismatch(f"{name} is {getattr(result, name)} instead of {getattr(expected, name)}")
    if expected.is_nested:
        for one, other in zip(expected.unbind(), result.unbind()):
            _compare_tensors(one, other, values, strides, tolerance)
        return
    if expected.shape != result.shape:
        raise Mismatch(f"shape is {tuple(result.shape)} instead of {tuple(expected.shape)}")
    strided = expected.layout == torch.strided
    if strides and strided and expected.numel() > 0 and expected.stride() != result.stride():
        raise Mismatch(f"strides are {result.stride()} instead of {expected.stride()}")
    if not values or (strided and expected.device.type == "meta"):
        return
    try:
        torch.testing.assert_close(
            result.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        raise Mismatch("values: " + " ".join(str(error).split())) from None


def _without_devices(text: str) -> str:
    text = re.sub(r"neuron(:\d+)?\b|PrivateUse1\b|CPU\b", "cpu", text)
    text = text.replace(", device='cpu'", "")  # of a tensor's repr
    text = re.sub(r"\bj\d+\b", "j", text)  # a new jagged tensor gets a new symbol for its sizes
    text = re.sub(r"\S+\.cpp:\d+: ", "", text)
    text = re.sub(r"\s*\(?raised by \S+ on cpu, stream -?\d+\)?", "", text)  # what only the worker could see
    return re.sub(r"0x[0-9a-f]+", "0x", text)
