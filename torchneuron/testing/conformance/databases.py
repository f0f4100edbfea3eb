"""The databases, each a module with `names()` and `check(name)`."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ... import neuron
from .outcomes import Outcome

MODULES = ("operators", "modules", "optimizers", "sparse", "nested", "distributions")


def entries(database: str) -> list[str]:
    """Names of the entries of a database of `MODULES`."""
    names: list[str] = _module(database).names()
    return names


def check(job: tuple[str, str], side_stream: bool = False) -> list[Outcome]:
    """All outcomes of one entry of a database, on the default stream or on a new one. Run in a worker process."""
    database, name = job
    torch.set_num_threads(1)
    neuron.match_cpu_random()
    stream = neuron.Stream() if side_stream else neuron.default_stream()
    with neuron.stream(stream):
        return list(_module(database).check(name))


def _module(database: str) -> Any:
    return importlib.import_module(f".{database}", __package__)
