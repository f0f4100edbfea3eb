"""The `torchneuron` command; one file for each subcommand."""

from __future__ import annotations

import argparse
import os
import sys

from . import ops

SUBCOMMANDS = {"ops": ops}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command."""
    parser = argparse.ArgumentParser(prog="torchneuron", description="Trainium as a PyTorch device, without the chip.")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    for name, module in SUBCOMMANDS.items():
        summary = module.__doc__ or ""
        subparser = subparsers.add_parser(name, help=summary.splitlines()[0], description=summary)
        module.add_arguments(subparser)
    parsed = parser.parse_args(arguments)
    try:
        SUBCOMMANDS[parsed.subcommand].run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # Its reader, such as `head`, has had enough; Python would fail once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
