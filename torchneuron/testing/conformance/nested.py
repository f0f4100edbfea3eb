"""Checks of the operators that take jagged nested tensors against what `cpu` gives."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.testing._internal.opinfo.definitions.nested import njt_op_db

from .operators import compare, compare_each, full_name, generated, gradients
from .outcomes import Outcome, SamplesUnavailable, Tally, outcomes_of


def names() -> list[str]:
    """The operators of the database for which it has samples."""
    return [full_name(op) for op in njt_op_db if _has_samples(op)]


def check(name: str) -> Iterator[Outcome]:
    """The outcomes of the operator of this name, forward and backward in float32."""
    op = next(op for op in njt_op_db if full_name(op) == name)

    def samples(requires_grad: bool) -> Iterator[SampleInput]:
        return generated(op, lambda: op.sample_inputs("cpu", torch.float32, requires_grad=requires_grad))

    def forward() -> Tally:
        return compare_each(op, samples(requires_grad=False), op.op, strides=False)

    def backward() -> Tally:
        return compare(op, samples(requires_grad=True), lambda a: gradients(op, a, a), strides=False)

    yield from outcomes_of("nested", name, "forward", "float32", forward)
    if op.supports_autograd:
        yield from outcomes_of("nested", name, "backward", "float32", backward)


def _has_samples(op: OpInfo) -> bool:
    if torch.float32 not in op.supported_dtypes("cpu"):
        return False
    try:
        next(iter(generated(op, lambda: [next(iter(op.sample_inputs("cpu", torch.float32)))])))
    except (SamplesUnavailable, StopIteration):
        return False
    return True
