"""How much two streams of one device overlap, and how much of a launch's time Python gets back.

    python benchmarks/overlap.py [--size 1024] [--length 20] [--rounds 7] [--json results.json]

Overlap: the time of two chains of matrix products on one stream, over their time on two streams. One intra-op thread,
so a host with two idle cores allows 2.0. Asynchrony: the time until the calls have returned, over the time of the work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

neuron = torch.get_device_module("neuron")


def chain(x: torch.Tensor, length: int) -> None:
    for _ in range(length):
        x = x @ x


def seconds(streams: list[torch.Stream], operands: list[torch.Tensor], length: int) -> tuple[float, float]:
    """Until the calls have returned, and until the work is done: chain i goes to streams[i]."""
    neuron.synchronize()
    began = time.perf_counter()
    for stream, x in zip(streams, operands):
        with neuron.stream(stream):
            chain(x, length)
    returned = time.perf_counter() - began
    neuron.synchronize()
    return returned, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="of the square matrices (default: 1024)")
    parser.add_argument("--length", type=int, default=20, help="products in a chain (default: 20)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    operands = [torch.eye(arguments.size, device="neuron") for _ in range(2)]
    a, b = neuron.Stream(), neuron.Stream()
    times: dict[str, list[float]] = {"one stream": [], "two streams": []}
    returned = []
    seconds([a, b], operands, 2)
    for _ in range(arguments.rounds):
        until_returned, until_done = seconds([a, a], operands, arguments.length)
        returned.append(until_returned / until_done)
        times["one stream"].append(until_done)
        times["two streams"].append(seconds([a, b], operands, arguments.length)[1])
    one, two = (statistics.median(times[name]) for name in ("one stream", "two streams"))
    print(f"two chains of {arguments.length} products of {arguments.size}x{arguments.size}")
    print(f"{'on one stream':28}{one * 1e3:10.1f} ms")
    print(f"{'on two streams':28}{two * 1e3:10.1f} ms")
    print(f"{'overlap':28}{one / two:10.2f}")
    print(f"{'returned to Python after':28}{statistics.median(returned):10.2%} of the time")
    if arguments.json:
        results = {"one_stream_s": one, "two_streams_s": two, "overlap": one / two}
        results["returned_after"] = statistics.median(returned)
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
