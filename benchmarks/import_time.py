"""What autoloading torchneuron adds to `import torch`: whole processes, the two kinds in turn, medians in milliseconds.

python benchmarks/import_time.py
python benchmarks/import_time.py --runs 31 --json import_time.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path


def time_import(autoload: bool) -> tuple[float, float]:
    """Wall time and CPU time, in ms, of a process that imports torch and ends."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], env=environment, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * wall, 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(runs: int) -> dict[str, float]:
    """Medians of `runs` interleaved runs after one of each that warms the page cache; the difference of the medians."""
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for run in range(runs + 1):
        for autoload in (True, False):
            measured = time_import(autoload)
            if run > 0:
                times[autoload].append(measured)
    result = {}
    for index, kind in enumerate(("wall", "cpu")):
        alone, loaded = (statistics.median(t[index] for t in times[autoload]) for autoload in (False, True))
        result[f"torch_{kind}_ms"] = alone
        result[f"autoload_{kind}_ms"] = loaded
        result[f"extra_{kind}_ms"] = loaded - alone
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    result = measure(options.runs)
    print(f"{'import torch, median of ' + str(options.runs):32}{'wall ms':>10}{'CPU ms':>10}")
    for label, key in (("alone", "torch"), ("with torchneuron", "autoload"), ("difference", "extra")):
        print(f"{label:32}{result[f'{key}_wall_ms']:10.1f}{result[f'{key}_cpu_ms']:10.1f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
