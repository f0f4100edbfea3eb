"""Which operators ran on the device, how often and for how long."""

from typing import NamedTuple

from .. import _C


class OpStats(NamedTuple):
    """Calls of one operator, and the seconds that its kernel ran in all."""

    calls: int
    seconds: float


def get_executed_ops() -> dict[str, OpStats]:
    """The operators that were queued on a stream since the last `clear_op_tracking()`, as {"aten::add.Tensor": ...}.

    The time is of the kernels that have finished; `torch.neuron.synchronize()` first for all of it.
    """
    return {name: OpStats(launches, ns / 1e9) for name, launches, _, ns in _C.op_counts() if launches}


def get_fallback_ops() -> dict[str, OpStats]:
    """The operators that had to wait for their stream and ran on the calling thread, on the same memory.

    They are right but let the host not run ahead. The time of an operator that also ran on a stream is of both.
    """
    return {name: OpStats(fallbacks, ns / 1e9) for name, _, fallbacks, ns in _C.op_counts() if fallbacks}


def clear_op_tracking() -> None:
    """Start both lists anew."""
    _C.clear_op_counts()
