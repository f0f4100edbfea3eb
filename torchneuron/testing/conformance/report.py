"""The outcomes as a file and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from .outcomes import FAILED, PASSED, SKIPPED, Outcome


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    content = {"torch": torch.__version__, "outcomes": [asdict(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts and shares by check and by dtype. The share is of passed among passed and failed."""
    return "\n".join(
        [
            *_rows("check", outcomes, lambda outcome: f"{outcome.database}: {outcome.check}"),
            "",
            *_rows("dtype", outcomes, lambda outcome: outcome.dtype or "(none)"),
        ]
    )


def _rows(title: str, outcomes: Sequence[Outcome], group: Callable[[Outcome], str]) -> list[str]:
    counts = Counter((group(outcome), outcome.status) for outcome in outcomes)
    lines = [f"{title:32} {PASSED:>8} {FAILED:>8} {SKIPPED:>8} {'share':>8}"]
    for name in dict.fromkeys(group(outcome) for outcome in outcomes):
        passed, failed, skipped = (counts[name, status] for status in (PASSED, FAILED, SKIPPED))
        share = f"{passed / (passed + failed):8.2%}" if passed + failed else f"{'-':>8}"
        lines.append(f"{name:32} {passed:8} {failed:8} {skipped:8} {share}")
    return lines
