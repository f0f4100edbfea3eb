"""Float32 and bfloat16 matrix products on `neuron` against `cpu`, in GFLOP/s.

    python benchmarks/matrix_products.py [--rounds 15]

The two devices take turns; the table has each one's fastest round. TORCHNEURON_TENSOR_ENGINE=onednn or =mkl shows what
the libraries reach on this host; by default the faster one is taken.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor], Tensor]

PRODUCTS: dict[str, tuple[Product, tuple[int, ...], tuple[int, ...]]] = {
    **{f"{n} x {n}": (torch.mm, (n, n), (n, n)) for n in (64, 128, 256, 512, 1024)},
    "1024x256 @ 256x1024": (torch.mm, (1024, 256), (256, 1024)),
    "32 of 128x64 @ 64x128": (torch.bmm, (32, 128, 64), (32, 64, 128)),
}


def seconds(product: Product, a: Tensor, b: Tensor, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        product(a, b)
    torch.accelerator.synchronize()
    return (time.perf_counter() - began) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{'':22} {'dtype':9} {'neuron':>8} {'cpu':>8}  time on neuron / time on cpu")
    for dtype in (torch.float32, torch.bfloat16):
        for name, (product, a_sizes, b_sizes) in PRODUCTS.items():
            operations = 2.0 * torch.Size(a_sizes).numel() * b_sizes[-1]
            calls = max(10, int(2e9 / operations))
            operands = {
                device: (torch.rand(a_sizes, device=device).to(dtype), torch.rand(b_sizes, device=device).to(dtype))
                for device in ("neuron", "cpu")
            }
            fastest = dict.fromkeys(operands, float("inf"))
            for _ in range(arguments.rounds):
                for device, (a, b) in operands.items():
                    fastest[device] = min(fastest[device], seconds(product, a, b, calls))
            rates = {device: operations / best / 1e9 for device, best in fastest.items()}
            ratio = fastest["neuron"] / fastest["cpu"]
            print(f"{name:22} {str(dtype)[6:]:9} {rates['neuron']:8.0f} {rates['cpu']:8.0f}  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
