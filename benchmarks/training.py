"""Time of a training step (forward, backward, AdamW) on `neuron` and on `cpu`: medians of interleaved rounds.

python benchmarks/training.py [--rounds 15] [--case 'GPT*'] [--memory] [--json results.json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import interleaved
import torch
import torch.nn.functional as F
from interleaved import Case, Run
from networks import LSTM_OPERATIONS, ResNet18, Tagger
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from models import GPT, ConvNet, GPTConfig


def training(
    name: str,
    model: Callable[[], nn.Module],
    batch: Callable[[], tuple[Tensor, Tensor]],
    repeats: int,
    operations: float | None = None,
) -> Case:
    """Steps on one batch of (inputs, targets) for a classifier of images or tokens."""

    def prepare(device: str) -> Run:
        torch.manual_seed(0)
        trained = model().to(device)
        inputs, targets = (tensor.to(device) for tensor in batch())
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)

        def run(steps: int) -> None:
            for _ in range(steps):
                loss = F.cross_entropy(trained(inputs).flatten(0, -2), targets.flatten())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            loss.item()  # waits for the device

        return run

    return Case(name, prepare, repeats, operations)


def gpt(width: int, layers: int, heads: int, batch: int, length: int, repeats: int) -> Case:
    config = GPTConfig(vocab_size=128, block_size=length, width=width, layers=layers, heads=heads)
    name = f"GPT d={width}, {layers} layers, batch {batch}x{length}"
    return training(name, lambda: GPT(config), lambda: tokens(128, 128, batch, length), repeats)


def tokens(vocab_size: int, classes: int, *size: int) -> tuple[Tensor, Tensor]:
    return torch.randint(vocab_size, size), torch.randint(classes, size)


def images(classes: int, batch: int, *size: int) -> tuple[Tensor, Tensor]:
    return torch.rand(batch, *size), torch.randint(classes, (batch,))


CASES = (
    gpt(width=64, layers=4, heads=4, batch=4, length=64, repeats=20),
    gpt(width=256, layers=6, heads=8, batch=8, length=128, repeats=2),
    training("conv net, batch 64x1x8x8", ConvNet, lambda: images(10, 64, 1, 8, 8), 20),
    training("ResNet-18, batch 16x3x64x64", ResNet18, lambda: images(100, 16, 3, 64, 64), 1),
    training("LSTM d=256, 2 layers, batch 8x64", Tagger, lambda: tokens(10000, 32, 8, 64), 2, 3 * LSTM_OPERATIONS),
)

if __name__ == "__main__":
    interleaved.main(__doc__, CASES)
