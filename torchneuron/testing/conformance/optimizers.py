"""Checks of one optimiser of the database: parameters and state after some steps, in every implementation."""

from __future__ import annotations

import copy as python_copy
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

from .comparison import DEVICE, compare_calls
from .outcomes import Mismatch, Outcome, Tally

STEPS = 5
IMPLEMENTATIONS = ("for-loop", "foreach", "fused", "capturable")
# With capturable=True the step count and what is computed of it are float32 tensors, on every device that has it.
CAPTURABLE_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-5, torch.complex64: 1e-5, torch.bfloat16: 3e-2}


def names() -> list[str]:
    """The optimisers of the database, such as "Adam"."""
    return [_class(info).__name__ for info in optim_db]


def check(name: str) -> Iterator[Outcome]:
    """The outcomes of the optimiser of this name; `cpu` takes the same steps with the same options."""
    info = next(info for info in optim_db if _class(info).__name__ == name)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        if dtype.is_complex and not info.supports_complex:
            continue
        for implementation in IMPLEMENTATIONS:
            tally = _compare(info, dtype, implementation)
            outcome = tally.outcome("optimizers", name, implementation, str(dtype).removeprefix("torch."))
            if outcome is not None:
                yield outcome


def _class(info: OptimizerInfo) -> type[torch.optim.Optimizer]:
    cls: Any = info.optim_cls  # annotated as an instance
    return cls


def _compare(info: OptimizerInfo, dtype: torch.dtype, implementation: str) -> Tally:
    tally = Tally()
    if implementation in ("foreach", "fused") and implementation not in info.supported_impls:
        return tally
    if implementation == "capturable" and not info.has_capturable_arg:
        return tally
    for options in info.optim_inputs_func("cpu"):
        on_neuron = python_copy.deepcopy(options.kwargs)
        on_cpu = python_copy.deepcopy(options.kwargs)
        if implementation == "capturable":
            on_neuron["capturable"] = True  # `cpu` has no such thing, and takes the same steps
        elif implementation != "for-loop":
            on_neuron[implementation] = on_cpu[implementation] = True
        elif "foreach" in info.supported_impls:
            on_neuron["foreach"] = on_cpu["foreach"] = False
        try:
            tally.samples += compare_calls(
                functools.partial(_train, info, dtype, torch.device("cpu"), on_cpu),
                functools.partial(_train, info, dtype, DEVICE, on_neuron),
                tolerance=CAPTURABLE_TOLERANCE[dtype] if implementation == "capturable" else None,
            )
        except Mismatch as mismatch:
            tally.samples += 1
            tally.reason = tally.reason or f"{options.desc}: {mismatch}"
    return tally


def _train(info: OptimizerInfo, dtype: torch.dtype, device: torch.device, options: dict[str, Any]) -> Any:
    """The parameters and the optimiser's state after `STEPS` steps with gradients drawn on the CPU."""
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, dtype=torch.float64, generator=generator).to(dtype).to(device)

    matrices_only = _class(info) is torch.optim.Muon
    shapes: list[tuple[int, ...]] = [(3, 4), (5, 2), (4, 4)] if matrices_only else [(3, 4), (5,), (2, 3, 2)]
    parameters = [torch.nn.Parameter(draw(*shape)) for shape in shapes]
    optimizer = _class(info)(parameters, **options)

    def closure() -> Any:
        for parameter, gradient in zip(parameters, gradients):
            gradient = gradient.to_sparse() if info.only_supports_sparse_grads else gradient
            parameter.grad = gradient.clone()
        return sum((p.detach().abs() ** 2).sum() for p in parameters)

    for _ in range(STEPS):
        gradients = [draw(*shape) for shape in shapes]
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = optimizer.state_dict()["state"]
    moments = [value for entry in state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    return [p.detach() for p in parameters], [moment for moment in moments if moment.dim() > 0]
