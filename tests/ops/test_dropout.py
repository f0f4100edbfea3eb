"""Dropout: one launch forward, one backward; masks of the device's generator or of the CPU's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors, launches_only
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def numbers_of_the_device() -> Iterator[None]:
    with torch.neuron.match_cpu_random(False):
        yield


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_kept_values_are_scaled_and_their_share_is_right(dtype: torch.dtype, p: float) -> None:
    n = 200_000
    # native_dropout is not differentiable for complex numbers in PyTorch.
    x = torch.linspace(1, 2, n, device=DEVICE).to(dtype).requires_grad_(not dtype.is_complex)
    y = F.dropout(x, p)
    kept = (y != 0).cpu()
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n)
    factor = torch.tensor(1 / (1 - p), dtype=torch.float64)
    expected = x.detach().cpu().to(torch.complex128 if dtype.is_complex else torch.float64) * factor * kept
    torch.testing.assert_close(y.detach().cpu(), expected.to(dtype))
    if x.requires_grad:
        y.sum().backward()
        torch.testing.assert_close(x.grad.cpu(), (factor * kept).to(dtype))


def test_one_launch_forward_and_one_backward() -> None:
    x = torch.randn(1000, device=DEVICE, requires_grad=True)
    seed = torch.ones_like(x)
    torch.neuron.clear_op_tracking()
    y = torch.nn.Dropout(0.3)(x)
    assert {name: stats.calls for name, stats in torch.neuron.get_executed_ops().items()} == {"aten::native_dropout": 1}
    torch.neuron.clear_op_tracking()
    y.backward(seed)
    executed = {name: stats.calls for name, stats in torch.neuron.get_executed_ops().items()}
    assert executed["aten::native_dropout_backward"] == 1
    assert not torch.neuron.get_fallback_ops()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masks_do_not_depend_on_strides(dtype: torch.dtype) -> None:
    x = torch.ones(4, 8, 9, 10, dtype=dtype, device=DEVICE)
    layouts = [
        x,
        x.to(memory_format=torch.channels_last),
        x.transpose(1, 3).contiguous().transpose(1, 3),
        x[:1].expand(4, 8, 9, 10),
    ]
    results = []
    for tensor in layouts:
        torch.manual_seed(1)
        y, mask = torch.native_dropout(tensor, 0.4, True)
        if tensor.is_contiguous() or tensor is layouts[1]:
            assert y.stride() == tensor.stride() == mask.stride()
        results.append(y)
        assert torch.equal(mask, y != 0)
    assert all(torch.equal(results[0], other) for other in results)


@pytest.mark.parametrize("strides", ["contiguous", "channels_last", "expanded"])
def test_backward_takes_gradients_of_any_strides(strides: str) -> None:
    x = torch.randn(2, 3, 4, 5, device=DEVICE).requires_grad_()
    y, mask = torch.native_dropout(x, 0.5, True)
    grad = torch.randn(2, 3, 4, 5)
    if strides == "channels_last":
        grad = grad.to(memory_format=torch.channels_last)
    elif strides == "expanded":
        grad = grad[:1, :1].expand(2, 3, 4, 5)
    on_device = grad.to(DEVICE) if strides != "expanded" else grad[:1, :1].to(DEVICE).expand(2, 3, 4, 5)
    y.backward(on_device)
    assert torch.equal(x.grad.cpu(), grad * mask.cpu() * 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.native_dropout(x, 0.3, False),
        lambda x: torch.native_dropout(x, 1.0, True),
        lambda x: torch.native_dropout(x, 0.0, True),
        lambda x: torch.native_dropout(x[:0], 0.3, True)[0],
        lambda x: torch.ops.aten.native_dropout_backward(x, x > 0, 1.25),
        lambda x: torch.ops.aten.native_dropout_backward(x.double(), x > 0, 1.25),
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, 1.0),
        lambda x: F.dropout(x, 0.5, training=False),
    ],
)
def test_what_draws_nothing_is_as_on_the_cpu(function: Callable[[Tensor], object]) -> None:
    compare(function, torch.randn(40))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.native_dropout(x, 1.5, True),
        lambda x: torch.native_dropout(x.long(), 0.5, True),
        lambda x: F.dropout(x, -0.5),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[[Tensor], object]) -> None:
    compare_errors(function, torch.randn(4))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.77])
@pytest.mark.parametrize("dtype", FLOATS)
def test_matches_the_cpu_forward_and_backward(p: float, dtype: torch.dtype) -> None:
    x = torch.randn(501, 33).to(dtype)
    grad = torch.randn(501, 33).to(dtype)
    with torch.neuron.match_cpu_random():
        torch.manual_seed(9)
        cpu = x.clone().requires_grad_()
        expected = F.dropout(cpu, p)
        expected.backward(grad)
        state = torch.get_rng_state()
        torch.manual_seed(9)
        device = x.to(DEVICE).requires_grad_()
        with launches_only():
            actual = F.dropout(device, p)
        actual.backward(grad.to(DEVICE))
    assert torch.equal(actual.cpu(), expected) and torch.equal(device.grad.cpu(), cpu.grad)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("matching", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_draws_the_same_mask_again(matching: bool, use_reentrant: bool) -> None:
    weight = torch.randn(50, 50, device=DEVICE, requires_grad=True)
    x = torch.randn(20, 50, device=DEVICE, requires_grad=True)

    def block(x: Tensor) -> Tensor:
        return F.dropout(x @ weight, 0.5)

    gradients = []
    with torch.neuron.match_cpu_random(matching):
        for checkpointed in (False, True):
            torch.manual_seed(2)
            y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=use_reentrant) if checkpointed else block(x)
            torch.rand(3, device=DEVICE)
            y.pow(2).sum().backward()
            gradients.append((x.grad.clone(), weight.grad.clone()))
            x.grad = weight.grad = None
    assert all(torch.equal(a, b) for a, b in zip(*gradients))
