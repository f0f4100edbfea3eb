"""The `torchneuron` command; one file for each subcommand."""

from __future__ import annotations

import argparse

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
    SUBCOMMANDS[parsed.subcommand].run(parsed)
