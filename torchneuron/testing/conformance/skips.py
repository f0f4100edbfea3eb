"""Checks that are not made, each with the reason: what PyTorch itself does for `cpu` leaves nothing to compare."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Skip:
    """Entries and checks are patterns such as "fft.*"; no dtypes stand for all."""

    database: str
    entry: str
    check: str
    dtypes: tuple[str, ...]
    reason: str


ACCUMULATES_BY_DEVICE = (
    "PyTorch chooses the dtype of the sums by the device's type: float32 for cpu, the input's for any that it does not "
    "know (torch/nn/modules/linear_cross_entropy_options.py)"
)
SKIPS = (
    Skip("operators", "nn.functional.linear_cross_entropy.*", "*", ("bfloat16", "float16"), ACCUMULATES_BY_DEVICE),
    Skip("modules", "nn.LinearCrossEntropyLoss", "*", ("bfloat16", "float16"), ACCUMULATES_BY_DEVICE),
    Skip(
        "operators",
        "nn.functional.grid_sample",
        "reference",
        ("bfloat16",),
        "CPU's kernel computes positions in bfloat16, which is too coarse for these images, and reads beyond them: NaN "
        "where float32 has none",
    ),
    Skip("nested", "split_with_sizes", "backward", (), "CPU's kernel ends the process by a segmentation fault"),
)


def reason_to_skip(database: str, entry: str, check: str, dtype: str) -> str:
    """Why the check is not made; empty if it is."""
    for skip in SKIPS:
        if (
            skip.database == database
            and fnmatch.fnmatchcase(entry, skip.entry)
            and fnmatch.fnmatchcase(check, skip.check)
            and (not skip.dtypes or dtype in skip.dtypes)
        ):
            return skip.reason
    return ""
