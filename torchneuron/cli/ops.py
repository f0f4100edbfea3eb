"""List the operators of ATen and how each runs on `neuron`.

generated: a launch written by csrc/ops/codegen; launch: one written by hand; composite: PyTorch computes it by other
operators; waits: CPU's kernel runs after a wait for the stream; none: neither neuron nor cpu has a kernel.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

HOWS = ("generated", "launch", "composite", "waits", "none")


@dataclass(frozen=True)
class Overload:
    """One overload of an operator, such as "add.Tensor", and what the dispatcher calls for a tensor on `neuron`."""

    name: str
    how: str
    where: str


def overloads(patterns: list[str] | None = None) -> Iterator[Overload]:
    """The overloads of ATen, by name; of those with `patterns` such as "conv*" only the ones that match.

    A pattern without a dot stands for all overloads of the operators that it matches; "aten::" may stand before it.
    """
    wanted = [pattern.removeprefix("aten::") for pattern in patterns or ()]
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        short = name.removeprefix("aten::")
        if short == name or (wanted and not any(_matches(short, pattern) for pattern in wanted)):
            continue
        yield _overload(name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's arguments."""
    parser.add_argument("pattern", nargs="*", help="only overloads that match, such as 'conv*' or add.Tensor")
    parser.add_argument("--how", choices=HOWS, action="append", help="only those that run so; may be repeated")
    parser.add_argument("--json", action="store_true", help="as a JSON list instead of a table")


def run(arguments: argparse.Namespace) -> None:
    """Prints the list; the counts go to stderr."""
    found = [o for o in overloads(arguments.pattern) if not arguments.how or o.how in arguments.how]
    if not found:
        sys.exit(f"no overload matches {' '.join(arguments.pattern) or '--how'}")
    if arguments.json:
        print(json.dumps([asdict(overload) for overload in found], indent=1))
        return
    width = max(len(overload.name) for overload in found)
    for overload in found:
        print(f"{overload.name:{width}}  {overload.how:9}  {overload.where}".rstrip())
    counts = Counter(overload.how for overload in found)
    print(", ".join(f"{counts[how]} {how}" for how in HOWS if counts[how]), file=sys.stderr)


def _matches(name: str, pattern: str) -> bool:
    operator = name.partition(".")[0]
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(operator, pattern)


def _overload(name: str) -> Overload:
    short = name.removeprefix("aten::")
    table = torch._C._dispatch_dump_table(name)
    row = next((line for line in table.splitlines() if line.startswith("PrivateUse1: ")), "")
    where = row.partition("registered at ")[2].partition(" [")[0]
    if where.startswith("csrc/ops/fallback.cpp"):
        has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
        return Overload(short, "waits" if has_kernel else "none", "")
    if where.startswith("generated/"):
        return Overload(short, "generated", "")
    if where.startswith("csrc/"):
        return Overload(short, "launch", where.partition(":")[0])
    return Overload(short, "composite" if where else "none", "")
