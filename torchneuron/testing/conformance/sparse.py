"""Checks of the operators that take sparse tensors, in each layout, against what `cpu` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from .operators import compare, compare_each, full_name, generated, gradients
from .outcomes import Outcome, Tally, outcomes_of

LAYOUTS = {
    "COO": torch.sparse_coo,
    "CSR": torch.sparse_csr,
    "CSC": torch.sparse_csc,
    "BSR": torch.sparse_bsr,
    "BSC": torch.sparse_bsc,
}
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool)


def names() -> list[str]:
    """The operators that PyTorch supports for at least one sparse layout."""
    return [full_name(op) for op in op_db if any(map(op.supports_sparse_layout, LAYOUTS.values()))]


def check(name: str) -> Iterator[Outcome]:
    """The outcomes of the operator of this name in all layouts that PyTorch supports."""
    op = next(op for op in op_db if full_name(op) == name)
    for dtype in (dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")):
        for layout_name, layout in LAYOUTS.items():
            if op.supports_sparse_layout(layout):
                yield from _check(op, name, dtype, layout_name, layout)


def _check(op: OpInfo, name: str, dtype: torch.dtype, layout_name: str, layout: torch.layout) -> Iterator[Outcome]:
    def forward() -> Tally:
        return compare_each(op, _samples(op, dtype, layout, requires_grad=False), op.op, strides=False)

    def backward() -> Tally:
        samples = _samples(op, dtype, layout, requires_grad=True)
        return compare(op, samples, lambda a: gradients(op, a, a), strides=False)

    dtype_name = str(dtype).removeprefix("torch.")
    yield from outcomes_of("sparse", name, f"{layout_name} forward", dtype_name, forward)
    if op.supports_autograd and dtype in (torch.float64, torch.complex64):
        yield from outcomes_of("sparse", name, f"{layout_name} backward", dtype_name, backward)


def _samples(op: OpInfo, dtype: torch.dtype, layout: torch.layout, requires_grad: bool) -> Iterator[SampleInput]:
    """PyTorch's own samples of the layout, or else matrices among the dense ones, made sparse."""

    def make() -> list[SampleInput]:
        try:
            return list(op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad))
        except NotImplementedError:
            dense = op.sample_inputs("cpu", dtype)
            return [_made_sparse(s, layout, requires_grad) for s in dense if _is_matrix(s.input)]

    return generated(op, make)


def _is_matrix(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 2


def _made_sparse(sample: SampleInput, layout: torch.layout, requires_grad: bool) -> SampleInput:
    blocked = layout in (torch.sparse_bsr, torch.sparse_bsc)
    made = sample.input.detach().to_sparse(layout=layout, blocksize=(1, 1) if blocked else None)
    return SampleInput(made.requires_grad_(requires_grad), args=sample.args, kwargs=sample.kwargs)
