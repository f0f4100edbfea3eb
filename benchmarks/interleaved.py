"""What the benchmarks of `neuron` against `cpu` share: timing in turns, peak memory, the command line and the table."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

DEVICES = ("neuron", "cpu")

# Does the work of a case some number of times on the device it was made for, and returns when all is done.
Run = Callable[[int], None]


@dataclass(frozen=True)
class Case:
    """One line of a benchmark: `prepare(device)` makes what does the work; a round repeats that `repeats` times.

    The least that the host must do for it, once: operations of matrix products in `product_dtype`, counted by PyTorch
    unless given, and bytes moved by what is bound by memory.
    """

    name: str
    prepare: Callable[[str], Run]
    repeats: int
    operations: float | None = None
    product_dtype: torch.dtype = torch.float32
    bytes_moved: float = 0


@dataclass
class Result:
    """Medians of milliseconds for the work once, and of the peak of MiB over what `import torch` takes, if asked."""

    case: str
    neuron_ms: float
    cpu_ms: float
    neuron_over_cpu: float
    host_limit_ms: float
    neuron_mib: float | None = None
    cpu_mib: float | None = None


def main(description: str | None, cases: Sequence[Case]) -> None:
    """Runs the command line of a benchmark that has these cases."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--case", default="*", help="only cases that match, such as 'GPT*'")
    parser.add_argument("--memory", action="store_true", help="also the peak memory of a process of each device")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--peak-on", choices=DEVICES, help="only print the peak MiB of --case on this device")
    arguments = parser.parse_args()
    chosen = [case for case in cases if case.name == arguments.case or fnmatch.fnmatch(case.name, arguments.case)]
    if not chosen:
        parser.error(f"--case {arguments.case}: not one of {', '.join(case.name for case in cases)}")
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: it takes at least 1")
    if arguments.json and not arguments.json.parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no folder {arguments.json.parent}")
    if arguments.peak_on:
        print(peak_mib(chosen[0], arguments.peak_on))
        return

    limits = HostLimits.measured()
    print(limits)
    print(f"{'':40}{'neuron ms':>11}{'cpu ms':>11}{'neuron : cpu':>14}{'host limit ms':>15}", end="")
    print(f"{'neuron MiB':>12}{'cpu MiB':>9}{'neuron : cpu':>14}" if arguments.memory else "")
    results = []
    for case in chosen:
        result = measure(case, arguments.rounds, limits)
        line = f"{result.case:40}{result.neuron_ms:11.2f}{result.cpu_ms:11.2f}{result.neuron_over_cpu:14.2f}"
        line += f"{result.host_limit_ms:15.2f}" if result.host_limit_ms else f"{'-':>15}"
        if arguments.memory:
            result.neuron_mib, result.cpu_mib = (peak_mib_of_process(case, device) for device in DEVICES)
            line += f"{result.neuron_mib:12.0f}{result.cpu_mib:9.0f}{result.neuron_mib / result.cpu_mib:14.2f}"
        results.append(asdict(result))
        print(line, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


@dataclass(frozen=True)
class HostLimits:
    """What both devices share: the fastest matrix product of any library here, and the bandwidth of a copy."""

    products_per_second: dict[torch.dtype, float]
    bytes_per_second: float

    @staticmethod
    def measured() -> HostLimits:
        rates = {}
        for dtype in (torch.float32, torch.bfloat16):
            operands = [torch.rand(1024, 1024).to(device, dtype) for device in DEVICES]
            rates[dtype] = 2 * 1024**3 / min(seconds(functools.partial(torch.matmul, a, a)) for a in operands)
        source, target = torch.rand(2**24), torch.empty(2**24)
        return HostLimits(rates, 2 * source.nbytes / seconds(lambda: target.copy_(source)))

    def milliseconds(self, case: Case) -> float:
        """The time of the case's operations and bytes at these rates; 0 if it has neither."""
        operations = counted_operations(case) if case.operations is None else case.operations
        return 1e3 * (
            operations / self.products_per_second[case.product_dtype] + case.bytes_moved / self.bytes_per_second
        )

    def __str__(self) -> str:
        rates = ", ".join(
            f"{rate / 1e9:.0f} GFLOP/s {str(dtype)[6:]}" for dtype, rate in self.products_per_second.items()
        )
        return f"host: {rates} (1024 x 1024), {self.bytes_per_second / 1e9:.1f} GB/s (copy of 64 MiB, both ways)"


def seconds(call: Callable[[], object]) -> float:
    """The fastest of several."""
    times = []
    for _ in range(8):
        began = time.perf_counter()
        call()
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def counted_operations(case: Case) -> float:
    """Additions and multiplications of the matrix products and convolutions that the case does on `cpu`."""
    run = case.prepare("cpu")
    with FlopCounterMode(display=False) as counter:
        run(1)
    return float(counter.get_total_flops())


def measure(case: Case, rounds: int, limits: HostLimits) -> Result:
    """A round times the work on one device and then on the other, so what else the machine does falls on both."""
    runs = {device: case.prepare(device) for device in DEVICES}
    for run in runs.values():
        run(max(3, case.repeats))
    times: dict[str, list[float]] = {device: [] for device in DEVICES}
    for number in range(rounds):
        for device in DEVICES if number % 2 == 0 else DEVICES[::-1]:
            began = time.perf_counter()
            runs[device](case.repeats)
            times[device].append((time.perf_counter() - began) / case.repeats * 1e3)
    neuron, cpu = (statistics.median(times[device]) for device in DEVICES)
    return Result(case.name, neuron, cpu, neuron / cpu, limits.milliseconds(case))


def peak_mib_of_process(case: Case, device: str) -> float:
    """As `peak_mib`, in a process of its own."""
    command = [sys.executable, sys.argv[0], "--case", case.name, "--peak-on", device]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_mib(case: Case, device: str) -> float:
    """The most memory that this process takes during five times the work, less what it has taken before it had any."""
    torch.ones(1, device=device).add(1)
    before = _process_kib("VmRSS")
    run = case.prepare(device)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far: tensors on their way from the host
    run(5)
    return (_process_kib("VmHWM") - before) / 1024


def _process_kib(field: str) -> int:
    """A field of proc(5)'s status: VmRSS is the memory that is resident, VmHWM the most that ever was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(field + ":"))
    return int(value)
