"""What a check came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .skips import reason_to_skip

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Outcome:
    """One check of one entry of a database with one dtype.

    `status` is "passed", "failed" or "skipped"; `samples` counts the inputs that were compared; `reason` is the first
    difference of a failure, or why the check was skipped.
    """

    database: str
    entry: str
    check: str
    dtype: str
    status: str
    samples: int
    reason: str = ""


class Mismatch(Exception):
    """`neuron` did something else than `cpu`."""


@dataclass
class Tally:
    """Samples and first difference of a check that is under way."""

    samples: int = 0
    reason: str = ""

    def outcome(self, database: str, entry: str, check: str, dtype: str) -> Outcome | None:
        """None if no sample was compared: the check says nothing then."""
        if self.samples == 0:
            return None
        return Outcome(
            database, entry, check, dtype, FAILED if self.reason else PASSED, self.samples, self.reason[:400]
        )


class SamplesUnavailable(Exception):
    """PyTorch's own generator of samples raises."""


def outcomes_of(database: str, entry: str, check: str, dtype: str, compare: Callable[[], Tally]) -> Iterator[Outcome]:
    """What `compare` came to, or that it is skipped; nothing if there was no sample."""
    reason = reason_to_skip(database, entry, check, dtype)
    tally = Tally()
    if not reason:
        try:
            tally = compare()
        except SamplesUnavailable as error:
            reason = str(error)
    outcome = tally.outcome(database, entry, check, dtype)
    if reason:
        yield Outcome(database, entry, check, dtype, SKIPPED, 0, reason)
    elif outcome is not None:
        yield outcome


def first_line(error: BaseException, limit: int = 200) -> str:
    """Type and beginning of the message, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:limit]}"


def failures(outcomes: list[Outcome]) -> Iterator[Outcome]:
    return (outcome for outcome in outcomes if outcome.status == FAILED)
