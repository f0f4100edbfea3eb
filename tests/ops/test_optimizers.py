"""Optimisers: the steps of CPU's, a fused one in one launch for all parameters; GradScaler's operators."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from torch import Tensor

SIZES: list[tuple[int, ...]] = [(17, 5), (33,), (), (4, 3, 3, 3), (129, 64)]
ADAM_OPTIONS: list[dict[str, Any]] = [{}, {"amsgrad": True}, {"maximize": True}, {"weight_decay": 0.1, "eps": 1e-5}]
FUSED: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    *((torch.optim.Adam, options) for options in ADAM_OPTIONS),
    *((torch.optim.AdamW, options) for options in ADAM_OPTIONS),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1, "maximize": True}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adagrad, {"weight_decay": 0.01, "lr_decay": 0.1}),
]
# Not SGD in half precision, whose kernel is wrong in PyTorch 2.13: its truth is the rule itself, below.
FUSED_CASES = [
    (optimizer, options, dtype)
    for optimizer, options in FUSED
    for dtype in (torch.float32, torch.float64, torch.bfloat16)
    if not (optimizer is torch.optim.SGD and dtype is torch.bfloat16)
]
OTHERS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.Adam, {}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.ASGD, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (torch.optim.Rprop, {}),
    (torch.optim.Adafactor, {}),
]


def name(value: Any) -> str:
    return (
        value.__name__
        if isinstance(value, type)
        else ",".join(value) or "default"
        if isinstance(value, dict)
        else str(value)
    )


def make_parameters(dtype: torch.dtype, device: str) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype).to(device)) for size in SIZES]


def make_gradients(dtype: torch.dtype, step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(size, generator=generator).to(dtype) for size in SIZES]


def steps(
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], dtype: torch.dtype, device: str, count: int = 3
) -> tuple[list[Tensor], list[dict[str, Any]]]:
    parameters = make_parameters(dtype, device)
    optimizer = make(parameters)
    for step in range(count):
        for parameter, gradient in zip(parameters, make_gradients(dtype, step)):
            parameter.grad = gradient.to(device)
        optimizer.step()
    return [p.detach() for p in parameters], [optimizer.state[p] for p in parameters]


@pytest.mark.parametrize("optimizer, options, dtype", FUSED_CASES, ids=name)
@pytest.mark.parametrize("tensor_lr", [False, True], ids=["lr", "tensor_lr"])
def test_fused(
    optimizer: type[torch.optim.Optimizer], options: dict[str, Any], dtype: torch.dtype, tensor_lr: bool
) -> None:
    if tensor_lr and optimizer is torch.optim.Adagrad:
        return  # torch.optim.Adagrad takes no tensor

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        lr = torch.tensor(0.02, device=parameters[0].device) if tensor_lr else 0.02
        made = optimizer(parameters, lr=lr, fused=True, **options)
        # The constructor reads a tensor's value to check it.
        torch.neuron.clear_op_tracking()
        return made

    expected = steps(make, dtype, "cpu")
    actual = steps(make, dtype, DEVICE)
    launched = {n: s.calls for n, s in torch.neuron.get_executed_ops().items()}
    assert not torch.neuron.get_fallback_ops()
    assert launched[f"aten::_fused_{optimizer.__name__.lower()}_"] == 3
    assert_same(actual, expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("options", [{}, {"nesterov": True}, {"dampening": 0.1, "maximize": True}], ids=name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_sgd_in_half_precision(momentum: float, options: dict[str, Any], dtype: torch.dtype) -> None:
    """Steps in single precision, rounded once for what is stored."""
    if not momentum and "nesterov" in options:
        options = {}
    parameters = make_parameters(dtype, DEVICE)
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=momentum, weight_decay=0.1, fused=True, **options)
    tolerance = torch.finfo(dtype).eps
    for step in range(3):
        gradients = make_gradients(dtype, step)
        expected = []
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.to(DEVICE)
            before = parameter.detach().cpu().double()
            change = gradient.double() * (-1 if "maximize" in options else 1) + 0.1 * before
            if momentum:
                old = optimizer.state[parameter].get("momentum_buffer")
                kept = 1 - options.get("dampening", 0)
                buffer = change if old is None else momentum * old.cpu().double() + kept * change
                change = change + momentum * buffer if "nesterov" in options else buffer
            expected.append(before - 0.02 * change)
        torch.neuron.clear_op_tracking()
        optimizer.step()
        assert not torch.neuron.get_fallback_ops()
        for parameter, gradient, value in zip(parameters, gradients, expected):
            assert torch.equal(parameter.grad.cpu(), gradient)
            torch.testing.assert_close(parameter.detach().cpu(), value.to(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("optimizer, options", OTHERS, ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_default_implementations_are_the_cpu_steps(
    optimizer: type[torch.optim.Optimizer], options: dict[str, Any], dtype: torch.dtype
) -> None:
    """What the device chooses (foreach) gives what CPU's loop over the parameters gives, up to its rounding."""
    expected, _ = steps(lambda ps: optimizer(ps, **options), dtype, "cpu")
    actual, _ = steps(lambda ps: optimizer(ps, **options), dtype, DEVICE)
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 2e-2}[dtype]
    assert_same(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("optimizer, options", [o for o in OTHERS if o[0] is not torch.optim.Adafactor], ids=name)
def test_foreach_is_the_cpu_foreach(optimizer: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    expected, _ = steps(lambda ps: optimizer(ps, foreach=True, **options), torch.float32, "cpu")
    torch.neuron.clear_op_tracking()
    actual, _ = steps(lambda ps: optimizer(ps, foreach=True, **options), torch.float32, DEVICE)
    assert_same(actual, expected)
    # PyTorch reads the count of steps for ASGD, and for Rprop a mask of the parameter without dimensions.
    reads = {"aten::_local_scalar_dense"} if optimizer in (torch.optim.ASGD, torch.optim.Rprop) else set()
    assert torch.neuron.get_fallback_ops().keys() == reads


@pytest.mark.parametrize("optimizer", [torch.optim.ASGD, torch.optim.Rprop])
def test_capturable_steps_read_nothing(optimizer: type[torch.optim.Optimizer]) -> None:
    expected, _ = steps(lambda ps: optimizer(ps, foreach=True), torch.float32, "cpu")
    torch.neuron.clear_op_tracking()
    actual, _ = steps(lambda ps: optimizer(ps, foreach=True, capturable=True), torch.float32, DEVICE)
    assert not torch.neuron.get_fallback_ops()
    assert_same(actual, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_a_foreach_step_is_one_launch_per_operator(optimizer: type[torch.optim.Optimizer]) -> None:
    parameters = [torch.nn.Parameter(torch.randn(10, 10, device=DEVICE)) for _ in range(50)]
    made = optimizer(parameters, lr=0.01)
    for _ in range(2):
        for p in parameters:
            p.grad = torch.ones_like(p)
        torch.neuron.clear_op_tracking()
        made.step()
    launches = {n: s.calls for n, s in torch.neuron.get_executed_ops().items()}
    assert sum(launches.values()) <= 16, launches


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("overflow", [False, True])
def test_fused_with_grad_scaler(optimizer: type[torch.optim.Optimizer], overflow: bool) -> None:
    def run(device: str) -> tuple[list[Tensor], dict[str, Any]]:
        parameters = make_parameters(torch.float32, device)
        made = optimizer(parameters, lr=0.02, fused=True)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
        for step in range(4):
            for parameter, gradient in zip(parameters, make_gradients(torch.float32, step)):
                parameter.grad = gradient.to(device) * scaler.scale(torch.ones((), device=device))
                if overflow and step == 1:
                    parameter.grad.view(-1)[0] = float("inf")
            scaler.step(made)
            scaler.update()
        return [p.detach() for p in parameters], scaler.state_dict()

    assert_same(run(DEVICE), run("cpu"))


def test_fused_with_gradients_of_other_strides() -> None:
    for layout in (torch.channels_last, torch.contiguous_format):
        parameter = torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
        gradient = torch.randn(4, 3, 5, 5).to(memory_format=layout)
        results = []
        for device in ("cpu", DEVICE):
            p = torch.nn.Parameter(parameter.detach().clone().to(device))
            p.grad = gradient.to(device)
            # The loop over the parameters is right for all strides.
            torch.optim.AdamW([p], lr=0.1, **({"fused": True} if device == DEVICE else {})).step()
            results.append(p.detach().cpu())
        torch.testing.assert_close(results[1], results[0])


def test_state_moves_between_devices() -> None:
    cpu = make_parameters(torch.float32, "cpu")
    trained = torch.optim.AdamW(cpu, lr=0.02)
    for parameter, gradient in zip(cpu, make_gradients(torch.float32, 0)):
        parameter.grad = gradient
    trained.step()
    device = [torch.nn.Parameter(p.detach().to(DEVICE)) for p in cpu]
    resumed = torch.optim.AdamW(device, lr=0.02)
    # Else both would count the same steps: the counters stay on the CPU, where loading shares them.
    resumed.load_state_dict(copy.deepcopy(trained.state_dict()))
    for on_cpu, on_device, gradient in zip(cpu, device, make_gradients(torch.float32, 1)):
        on_cpu.grad, on_device.grad = gradient, gradient.to(DEVICE)
    trained.step()
    resumed.step()
    assert_same([p.detach() for p in device], [p.detach() for p in cpu], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_unscale_and_check(dtype: torch.dtype, bad: float | None) -> None:
    gradients = make_gradients(dtype, 0)
    if bad is not None:
        gradients[3].view(-1)[2] = bad
    compare(torch._amp_foreach_non_finite_check_and_unscale_, gradients, torch.zeros(1), torch.tensor(0.25))


@pytest.mark.parametrize("found, tracker", [(0.0, 0), (0.0, 4), (1.0, 3)])
def test_update_scale(found: float, tracker: int) -> None:
    compare(
        lambda scale, growth, inf: torch._amp_update_scale_(scale, growth, inf, 2.0, 0.5, 5),
        torch.tensor(16.0),
        torch.tensor(tracker, dtype=torch.int32),
        torch.tensor(found),
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda t: torch._amp_foreach_non_finite_check_and_unscale_([t], t.new_zeros(2), t.new_ones(1)),
        lambda t: torch._amp_foreach_non_finite_check_and_unscale_([t], t.new_zeros(1), t.new_ones(2)),
        lambda t: torch._amp_foreach_non_finite_check_and_unscale_([t], t.new_zeros(1).double(), t.new_ones(1)),
        lambda t: torch._amp_update_scale_(t.new_ones(1), t.new_ones(1), t.new_ones(1), 2.0, 0.5, 5),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[[Tensor], object]) -> None:
    compare_errors(function, torch.ones(3))


def test_grad_scaler_needs_no_waiting_before_step() -> None:
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    p = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    optimizer = torch.optim.SGD([p], lr=0.1, fused=True)
    scaler.scale(p.sum()).backward()
    with launches_only():
        scaler.step(optimizer)
    assert_same(p.detach(), torch.full((3,), 0.9), rtol=1e-6)
