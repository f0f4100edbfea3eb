"""Bandwidth of copies between host and `neuron`, against the host's own memcpy in the same run.

    python benchmarks/copies.py [--mebibytes 64] [--rounds 15] [--json results.json]

Every round does each copy once, in turn; the table has medians. All memory was touched before. The times include the
wait for the device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

neuron = torch.get_device_module("neuron")


def copies(nbytes: int) -> dict[str, Callable[[], object]]:
    """Each copies `nbytes`, and returns when they are there."""
    count = nbytes // 4
    source, target = torch.ones(count), torch.zeros(count)
    pinned = torch.ones(count).pin_memory()
    device, other = torch.ones(count, device="neuron"), torch.zeros(count, device="neuron")
    next_core = torch.zeros(count, device="neuron:1") if neuron.device_count() > 1 else None
    numpy_source, numpy_target = np.ones(count, np.float32), np.zeros(count, np.float32)

    def settled(copy: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            copy()
            neuron.synchronize()

        return run

    table: dict[str, Callable[[], object]] = {
        "memcpy: numpy.copyto": lambda: np.copyto(numpy_target, numpy_source),
        "memcpy: torch cpu copy_": lambda: target.copy_(source),
        "host to device, pageable": settled(lambda: device.copy_(source)),
        "host to device, pinned": settled(lambda: device.copy_(pinned, non_blocking=True)),
        "device to host, pageable": settled(lambda: target.copy_(device)),
        "device to host, pinned": settled(lambda: pinned.copy_(device, non_blocking=True)),
        "device to device": settled(lambda: other.copy_(device)),
    }
    if next_core is not None:
        table["neuron:0 to neuron:1"] = settled(lambda: next_core.copy_(device))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()

    nbytes = arguments.mebibytes << 20
    table = copies(nbytes)
    times: dict[str, list[float]] = {name: [] for name in table}
    for round_number in range(arguments.rounds + 2):
        for name, copy in table.items():
            began = time.perf_counter()
            copy()
            spent = time.perf_counter() - began
            if round_number >= 2:
                times[name].append(spent)
    rates = {name: nbytes / statistics.median(spent) / 1e9 for name, spent in times.items()}
    memcpy = max(rate for name, rate in rates.items() if name.startswith("memcpy"))
    print(f"{arguments.mebibytes} MiB{'':22}{'GB/s':>10}{'of memcpy':>12}")
    for name, rate in rates.items():
        print(f"{name:28}{rate:10.2f}{rate / memcpy:12.0%}")
    if arguments.json:
        results = {name: {"gb_per_s": rate, "of_memcpy": rate / memcpy} for name, rate in rates.items()}
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
