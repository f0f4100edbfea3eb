"""Writes the C++ launches of ATen's structured operators. Run by the build:

    python csrc/ops/codegen/generate.py --output-dir DIR    writes the files, each only if its text changes
    python csrc/ops/codegen/generate.py --list              prints their names, one a line

The files compile with csrc/ on the include path. They leave out every overload that a file in csrc/ops registers by
hand, so the build runs this again whenever one of those files changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structured_ops import StructuredOp

FILES = tuple(f"structured_{i}.cpp" for i in range(5))
OPS_FOLDER = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the C++ launches of ATen's structured operators.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the files; made if it is missing")
    action.add_argument("--list", action="store_true", help="print the files' names and write nothing")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(FILES))
        return
    for path in write_files(options.output_dir):
        print(path)


def write_files(output_dir: Path, ops_folder: Path = OPS_FOLDER) -> list[Path]:
    """Writes the files into `output_dir` and returns those whose text changed."""
    output_dir.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in generate(ops_folder).items():
        path = output_dir / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def generate(ops_folder: Path = OPS_FOLDER) -> dict[str, str]:
    """The text of each file. `ops_folder` holds the hand-written operators."""
    from structured_ops import hand_written_overloads, structured_ops

    ops = structured_ops(hand_written_overloads(ops_folder))
    # Operators of one signature share most of the templates that they need, so they go to one file. Those without an
    # overload to write count too: an operator stays in its file when another becomes hand-written.
    ops.sort(key=lambda op: op.signature)
    bounds = [len(ops) * i // len(FILES) for i in range(len(FILES) + 1)]
    return {name: _file_text(ops[bounds[i] : bounds[i + 1]]) for i, name in enumerate(FILES)}


def _file_text(ops: Sequence[StructuredOp]) -> str:
    from launch_writer import headers, launch_functions, registrations

    written = [op for op in ops if op.overloads]
    includes = "".join(f"#include <{header}>\n" for header in sorted({h for op in written for h in headers(op.group)}))
    functions = "\n".join(launch_functions(op.group, op.overloads) for op in written)
    registered = "".join(registrations(op.overloads) for op in written)
    return f"""// Written by csrc/ops/codegen/generate.py. Change that, not this.

#include "ops/codegen/structured.h"

{includes}#include <torch/library.h>

namespace torchneuron::structured {{
namespace {{

{functions}
}}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {{
{registered}}}

}}  // namespace torchneuron::structured
"""


if __name__ == "__main__":
    main()
