"""What a call of an operator costs the host on `neuron`, and on `cpu`, for tensors so small that only the call counts.

    python benchmarks/host_cost.py [--rounds 40] [--calls 400] [--json results.json]

A round times a burst of calls on one device and then on the other; the table has medians over the rounds. On `neuron`
the burst is shorter than the stream's queue, and the wait for the device is outside the time: it is the cost of the
launch. On `cpu` the same call also computes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

neuron = torch.get_device_module("neuron")

Call = Callable[[], object]


def operators(device: str) -> dict[str, Call]:
    """One call of each kind of operator."""
    a, b = torch.rand(4, 4, device=device), torch.rand(4, 4, device=device)
    row, index = torch.rand(4, device=device), torch.tensor([2, 0], device=device)
    image, kernel = torch.rand(1, 2, 6, 6, device=device), torch.rand(2, 2, 3, 3, device=device)
    heads = torch.rand(1, 2, 4, 8, device=device)
    many = [torch.rand(4, device=device) for _ in range(20)]
    weight = torch.rand(4, 4, device=device, requires_grad=True)
    return {
        "a + b": lambda: a + b,
        "a * 2": lambda: a * 2,
        "a.add_(b)": lambda: a.add_(b),
        "torch.add(out=)": lambda: torch.add(a, b, out=b),
        "a @ b": lambda: a @ b,
        "a.exp()": a.exp,
        "a.sum()": a.sum,
        "a.softmax(-1)": lambda: a.softmax(-1),
        "layer_norm": lambda: F.layer_norm(a, (4,), row, row),
        "linear": lambda: F.linear(a, b, row),
        "conv2d": lambda: F.conv2d(image, kernel),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "a[index]": lambda: a[index],
        "torch.cat": lambda: torch.cat((a, b)),
        "a.to(bfloat16)": lambda: a.to(torch.bfloat16),
        "a.clone()": a.clone,
        "a.t() (a view)": a.t,
        "torch.empty": lambda: torch.empty(4, 4, device=device),
        "torch.zeros": lambda: torch.zeros(4, 4, device=device),
        "torch.rand": lambda: torch.rand(4, 4, device=device),
        "dropout": lambda: F.dropout(a, 0.5),
        "_foreach_add_ of 20": lambda: torch._foreach_add_(many, 1.0),
        "a @ w, with autograd": lambda: a @ weight,
    }


def microseconds(call: Call, calls: int, wait: Call) -> float:
    """Of one call, in a burst of `calls`."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    spent = time.perf_counter() - began
    wait()
    return spent / calls * 1e6


def nothing() -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=400, help="of one burst (default: 400)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    on_neuron, on_cpu = operators("neuron"), operators("cpu")
    overhead = statistics.median(microseconds(nothing, arguments.calls, nothing) for _ in range(arguments.rounds))
    print(f"µs of one call, without the {overhead:.2f} µs that Python takes to call a function that does nothing")
    print(f"{'operator':24}{'neuron':>10}{'cpu':>10}{'neuron : cpu':>15}")
    results = {}
    for name in on_neuron:
        times: dict[str, list[float]] = {"neuron": [], "cpu": []}
        for _ in range(arguments.rounds):
            times["neuron"].append(microseconds(on_neuron[name], arguments.calls, neuron.synchronize))
            times["cpu"].append(microseconds(on_cpu[name], arguments.calls, nothing))
        launch, cpu = (statistics.median(times[device]) - overhead for device in ("neuron", "cpu"))
        results[name] = {"neuron_us": launch, "cpu_us": cpu, "neuron_over_cpu": launch / cpu}
        print(f"{name:24}{launch:10.2f}{cpu:10.2f}{launch / cpu:15.2f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
