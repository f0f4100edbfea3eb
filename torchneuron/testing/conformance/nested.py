"""Checks of the operators that take jagged nested tensors against what `cpu` gives."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.testing._internal.opinfo.definitions.nested import njt_op_db

from .operators import SamplesUnavailable, compare, compare_each, full_name, generated, gradients
from .outcomes import SKIPPED, Outcome

# Their backward on jagged tensors ends the process on `cpu`, by a segmentation fault in PyTorch 2.13.
CRASH_ON_CPU = frozenset({"split_with_sizes"})


def names() -> list[str]:
    """The operators of the database for which it has samples."""
    return [full_name(op) for op in njt_op_db if _has_samples(op)]


def check(name: str) -> Iterator[Outcome]:
    """The outcomes of the operator of this name, forward and backward in float32."""
    op = next(op for op in njt_op_db if full_name(op) == name)
    forward = compare_each(op, generated(op, lambda: op.sample_inputs("cpu", torch.float32)), op.op, strides=False)
    outcomes = [forward.outcome("nested", name, "forward", "float32")]
    if name in CRASH_ON_CPU:
        reason = "PyTorch's backward for cpu ends the process"
        outcomes.append(Outcome("nested", name, "backward", "float32", SKIPPED, 0, reason))
    elif op.supports_autograd:
        samples = generated(op, lambda: op.sample_inputs("cpu", torch.float32, requires_grad=True))
        backward = compare(op, samples, lambda a: gradients(op, a, a), strides=False)
        outcomes.append(backward.outcome("nested", name, "backward", "float32"))
    yield from (outcome for outcome in outcomes if outcome is not None)


def _has_samples(op: OpInfo) -> bool:
    if torch.float32 not in op.supported_dtypes("cpu"):
        return False
    try:
        next(iter(generated(op, lambda: [next(iter(op.sample_inputs("cpu", torch.float32)))])))
    except (SamplesUnavailable, StopIteration):
        return False
    return True
