"""Command line of the conformance run."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import os
import time
from pathlib import Path

from tqdm import tqdm

from . import databases, report, workers
from .outcomes import FAILED, Outcome

SECONDS_PER_JOB = 300


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torchneuron.testing.conformance", description=__doc__)
    parser.add_argument("--database", choices=databases.MODULES, action="append", help="default: all")
    parser.add_argument("--entry", action="append", help="only entries that match, such as 'nn.functional.*'")
    parser.add_argument(
        "--side-streams", action="store_true", help="each entry on a stream that is not the default one"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=Path("conformance.json"))
    arguments = parser.parse_args()
    if arguments.processes < 1:
        parser.error(f"--processes {arguments.processes}: it takes at least 1")
    if not arguments.output.parent.is_dir():
        parser.error(f"--output {arguments.output}: there is no folder {arguments.output.parent}")

    jobs = [
        (database, name)
        for database in arguments.database or databases.MODULES
        for name in databases.entries(database)
        if not arguments.entry or any(fnmatch.fnmatch(name, pattern) for pattern in arguments.entry)
    ]
    if not jobs:
        parser.error(f"--entry {' '.join(arguments.entry)}: no entry of the databases matches")
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with tqdm(total=len(jobs), unit="entry", mininterval=2) as bar:
        for (database, name), results, problem in workers.run(
            jobs,
            functools.partial(databases.check, side_stream=arguments.side_streams),
            arguments.processes,
            SECONDS_PER_JOB,
        ):
            outcomes += results
            if problem:
                outcomes.append(Outcome(database, name, "process", "", FAILED, 0, problem))
            bar.update()
    report.write(outcomes, arguments.output)
    print(report.table(outcomes))
    print(f"{time.monotonic() - began:.0f} s, {arguments.processes} processes; all outcomes: {arguments.output}")


if __name__ == "__main__":
    main()
