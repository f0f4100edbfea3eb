"""Time of a forward pass without gradients on `neuron` and on `cpu`: medians of interleaved rounds.

python benchmarks/inference.py [--rounds 15] [--case 'BERT*'] [--memory] [--json results.json]
"""

from __future__ import annotations

from collections.abc import Callable

import interleaved
import torch
from interleaved import Case, Run
from networks import LSTM_OPERATIONS, Encoder, ResNet18, Tagger
from torch import Tensor, nn


def inference(
    name: str,
    model: Callable[[], nn.Module],
    inputs: Callable[[], Tensor],
    repeats: int,
    dtype: torch.dtype = torch.float32,
    operations: float | None = None,
) -> Case:
    def prepare(device: str) -> Run:
        torch.manual_seed(0)
        network, x = model().eval().to(device, dtype), inputs().to(device)

        @torch.inference_mode()
        def run(passes: int) -> None:
            for _ in range(passes):
                result = network(x)
            result[0, 0].sum().item()  # waits for the device

        return run

    return Case(name, prepare, repeats, operations, dtype)


def ids() -> Tensor:
    return torch.randint(10000, (4, 128))


CASES = (
    inference("BERT-base-like, batch 4x128", Encoder, ids, 1),
    inference("BERT-base-like, batch 4x128, bfloat16", Encoder, ids, 1, torch.bfloat16),
    inference(
        "LSTM d=256, 2 layers, batch 8x64", Tagger, lambda: torch.randint(10000, (8, 64)), 4, operations=LSTM_OPERATIONS
    ),
    inference("ResNet-18, batch 16x3x64x64", ResNet18, lambda: torch.rand(16, 3, 64, 64), 1),
)

if __name__ == "__main__":
    interleaved.main(__doc__, CASES)
