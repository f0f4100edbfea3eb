"""Outputs and gradients of a function, as one structure to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def with_gradients(function: Callable[..., Any], *inputs: Any, twice: bool = False) -> tuple[Any, ...]:
    """Calls `function` and differentiates its floating outputs by its floating inputs.

    Returns the outputs, the gradients and, with `twice`, the gradients of the gradients. The gradients that come in
    are a fixed function of the outputs, in their layout.
    """
    leaves = [x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in inputs]
    outputs = [o for o in tree_leaves(function(*leaves)) if isinstance(o, torch.Tensor)]
    differentiable = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    ends = [o for o in outputs if o.requires_grad]
    seeds = [(o.detach() * 1.7 + 0.3).cos().requires_grad_(twice) for o in ends]
    first = torch.autograd.grad(ends, differentiable, seeds, create_graph=twice, allow_unused=True)
    second: tuple[Any, ...] = ()
    if twice:
        ends = [g for g in first if g is not None and g.requires_grad]
        again = [(g.detach() * 0.9 - 0.2).cos() for g in ends]
        second = torch.autograd.grad(ends, [*differentiable, *seeds], again, allow_unused=True)
    return [o.detach() for o in outputs], [g if g is None else g.detach() for g in first], second
