"""Time of a training step (forward, backward, AdamW) on `neuron` and on `cpu`: medians of interleaved rounds.

    python benchmarks/training.py [--rounds 15] [--json results.json]

A round times a few steps on one device and then on the other, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from models import GPT, ConvNet, GPTConfig

DEVICES = ("neuron", "cpu")


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], torch.nn.Module]
    inputs: Callable[[], torch.Tensor]
    targets: Callable[[], torch.Tensor]
    steps: int  # of a round


def gpt(width: int, layers: int, heads: int, batch: int, time_steps: int, steps: int) -> Case:
    config = GPTConfig(vocab_size=128, block_size=time_steps, width=width, layers=layers, heads=heads)

    def ids() -> torch.Tensor:
        return torch.randint(config.vocab_size, (batch, time_steps))

    name = f"GPT d={width}, {layers} layers, batch {batch}x{time_steps}"
    return Case(name, lambda: GPT(config), ids, ids, steps)


def conv_net(batch: int, steps: int) -> Case:
    return Case(
        f"conv net, batch {batch}x1x8x8",
        ConvNet,
        lambda: torch.rand(batch, 1, 8, 8),
        lambda: torch.randint(10, (batch,)),
        steps,
    )


CASES = (
    gpt(width=64, layers=4, heads=4, batch=4, time_steps=64, steps=20),
    gpt(width=256, layers=6, heads=8, batch=8, time_steps=128, steps=2),
    conv_net(batch=64, steps=20),
)


@dataclass
class Result:
    case: str
    neuron_ms: float
    cpu_ms: float
    neuron_over_cpu: float


def measure(case: Case, rounds: int) -> Result:
    """Medians over `rounds` of the milliseconds of one step."""
    trainers = {device: trainer(case, device) for device in DEVICES}
    for train in trainers.values():
        train(max(3, case.steps))
    times: dict[str, list[float]] = {device: [] for device in DEVICES}
    for round_number in range(rounds):
        for device in DEVICES if round_number % 2 == 0 else DEVICES[::-1]:
            began = time.perf_counter()
            trainers[device](case.steps)
            times[device].append((time.perf_counter() - began) / case.steps * 1e3)
    neuron, cpu = (statistics.median(times[device]) for device in DEVICES)
    return Result(case.name, neuron, cpu, neuron / cpu)


def trainer(case: Case, device: str) -> Callable[[int], None]:
    """A function that trains for a number of steps on `device` and returns when they are done."""
    torch.manual_seed(0)
    model = case.model().to(device)
    inputs, targets = case.inputs().to(device), case.targets().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()  # waits for the device

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()

    print(f"{'training step':36}{'neuron ms':>12}{'cpu ms':>12}{'neuron : cpu':>15}")
    results = []
    for case in CASES:
        result = measure(case, arguments.rounds)
        results.append(asdict(result))
        print(
            f"{result.case:36}{result.neuron_ms:12.2f}{result.cpu_ms:12.2f}{result.neuron_over_cpu:15.2f}", flush=True
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
