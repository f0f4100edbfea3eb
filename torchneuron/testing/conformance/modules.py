"""Checks of one module of the database: its results, and the gradients of inputs and parameters."""

from __future__ import annotations

import copy as python_copy
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_leaves

from .comparison import DEVICE, compare_calls, copy, move, seed
from .outcomes import Mismatch, Outcome, Tally, outcomes_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)


def names() -> list[str]:
    """The modules of the database, such as "nn.Linear"."""
    return [info.name for info in module_db]


def check(name: str) -> Iterator[Outcome]:
    """The outcomes of the module of this name, in training and in evaluation."""
    info = next(info for info in module_db if info.name == name)
    for dtype in (dtype for dtype in DTYPES if dtype in info.dtypes):
        for training in (True, False):
            for check_name, gradients in (("forward", False), ("backward", True)):
                mode = "training" if training else "evaluation"
                compare = functools.partial(_compare, info, dtype, training, gradients)
                yield from outcomes_of(
                    "modules", name, f"{check_name} in {mode}", str(dtype).removeprefix("torch."), compare
                )


def _compare(info: ModuleInfo, dtype: torch.dtype, training: bool, gradients: bool) -> Tally:
    tally = Tally()
    seed()
    for sample in info.module_inputs_func(info, "cpu", dtype, requires_grad=gradients, training=training):
        seed()
        constructor = sample.constructor_input
        try:
            module = info.module_cls(*constructor.args, **constructor.kwargs, dtype=dtype)
        except TypeError:
            module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype)
        module.train(training)
        if sample.forward_input is None:
            continue
        inputs = (tuple(sample.forward_input.args), dict(sample.forward_input.kwargs))
        moved = python_copy.deepcopy(module).to(DEVICE)
        try:
            tally.samples += compare_calls(
                functools.partial(_run, module, copy(inputs), gradients),
                functools.partial(_run, moved, move(inputs), gradients),
                strides=not gradients,
            )
        except Mismatch as mismatch:
            tally.samples += 1
            tally.reason = tally.reason or f"{sample.desc or f'sample {tally.samples}'}: {mismatch}"
    return tally


def _run(module: torch.nn.Module, inputs: Any, gradients: bool) -> Any:
    args, kwargs = inputs
    result = module(*args, **kwargs)
    if not gradients:
        return result, dict(module.state_dict())
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves += list(module.parameters())
    if not outputs or not leaves:
        return ()
    return torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)
