"""Checks that are not made, each with the reason: what PyTorch itself does for `cpu` leaves nothing to compare."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Skip:
    """The entry is a pattern such as "fft.*"; no dtypes stand for all."""

    database: str
    entry: str
    checks: tuple[str, ...]
    dtypes: tuple[str, ...]
    reason: str


ACCUMULATES_BY_DEVICE = (
    "PyTorch chooses the dtype of the sums by the device's type: float32 for cpu, the input's for any that it does not "
    "know (torch/nn/modules/linear_cross_entropy_options.py)"
)
SKIPS = (
    Skip(
        "operators",
        "nn.functional.linear_cross_entropy.*",
        ("forward", "non-contiguous", "reference", "backward"),
        ("bfloat16", "float16"),
        ACCUMULATES_BY_DEVICE,
    ),
    Skip(
        "modules",
        "nn.LinearCrossEntropyLoss",
        ("forward in training", "backward in training", "forward in evaluation", "backward in evaluation"),
        ("bfloat16", "float16"),
        ACCUMULATES_BY_DEVICE,
    ),
    Skip(
        "operators",
        "nn.functional.grid_sample",
        ("reference",),
        ("bfloat16",),
        "CPU's kernel computes positions in bfloat16, which is too coarse for these images, and reads beyond them: NaN "
        "where float32 has none",
    ),
    Skip(
        "operators",
        "torch._scaled_mm",
        ("forward", "non-contiguous"),
        ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        "the samples overflow float8, which CPU saturates, as neuron does, or turns into NaN where it has AMX",
    ),
    Skip("nested", "split_with_sizes", ("backward",), (), "CPU's kernel ends the process by a segmentation fault"),
)


def reason_to_skip(database: str, entry: str, check: str, dtype: str) -> str:
    """Why the check is not made; empty if it is."""
    for skip in SKIPS:
        if (
            skip.database == database
            and fnmatch.fnmatchcase(entry, skip.entry)
            and check in skip.checks
            and (not skip.dtypes or dtype in skip.dtypes)
        ):
            return skip.reason
    return ""
