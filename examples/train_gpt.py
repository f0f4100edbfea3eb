"""Train a small character GPT on the Psalms, Proverbs, Ecclesiastes and the Song of Songs (King James Version).

    python examples/train_gpt.py --device neuron
    python examples/train_gpt.py --device cpu

Nothing else differs between the devices.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from models import GPT, GPTConfig
from torch import Tensor
from tqdm import tqdm

TEXT = Path(__file__).parent / "text" / "king_james_poetry.txt"


class Characters:
    """The text as character ids, split into 95 % to train on and 5 % to validate with."""

    def __init__(self, path: Path = TEXT) -> None:
        text = path.read_text(encoding="ascii")
        self.alphabet = sorted(set(text))
        self.id_of = {character: i for i, character in enumerate(self.alphabet)}
        ids = self.encode(text)
        cut = len(ids) * 95 // 100
        self.training, self.validation = ids[:cut], ids[cut:]

    def encode(self, text: str) -> Tensor:
        return torch.tensor([self.id_of[character] for character in text])

    def decode(self, ids: Tensor) -> str:
        return "".join(self.alphabet[i] for i in ids.tolist())


@dataclass
class GPTRun:
    losses: list[float]  # of each training step, nats per character
    validation_loss: float
    seconds: float  # of the training steps
    tokens_per_second: float
    sample: str


def windows(ids: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each (len(starts), length): the targets are one character ahead."""
    rows = ids[starts[:, None] + torch.arange(length + 1, device=ids.device)]
    return rows[:, :-1], rows[:, 1:]


def train(
    device: str | torch.device,
    steps: int = 800,
    batch_size: int = 12,
    learning_rate: float = 5e-3,
    prompt: str = "The LORD is",
    sample_length: int = 300,
    seed: int = 0,
) -> GPTRun:
    device = torch.device(device)
    torch.manual_seed(seed)
    data = Characters()
    config = GPTConfig(vocab_size=len(data.alphabet), layers=3)
    model = GPT(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)

    text = data.training.to(device)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    began = time.perf_counter()
    with tqdm(range(steps), desc=f"GPT on {device}", unit="step") as bar:
        for step in bar:
            starts = torch.randint(len(text) - config.block_size, (batch_size,), generator=draw).to(device)
            inputs, targets = windows(text, starts, config.block_size)
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            if step % 20 == 0 or step == steps - 1:  # reading the loss waits for the device
                bar.set_postfix(loss=f"{loss.item():.3f}")
    history = torch.stack(losses).tolist()
    seconds = time.perf_counter() - began

    model.eval()
    sampled = model.generate(data.encode(prompt)[None].to(device), sample_length, temperature=0.7)
    return GPTRun(
        losses=history,
        validation_loss=validate(model, data.validation.to(device)),
        seconds=seconds,
        tokens_per_second=steps * batch_size * config.block_size / seconds,
        sample=data.decode(sampled[0]),
    )


@torch.no_grad()
def validate(model: GPT, ids: Tensor) -> float:
    """Mean loss over `ids` in nats per character."""
    length = model.config.block_size
    starts = torch.arange(0, len(ids) - length, length, device=ids.device)
    inputs, targets = windows(ids, starts, length)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=800)
    arguments = parser.parse_args()
    run = train(arguments.device, arguments.steps)
    print(f"\n{run.sample}\n")
    print(
        f"{arguments.device}: validation loss {run.validation_loss:.4f} nats per character, "
        f"{run.tokens_per_second:,.0f} tokens/s, {run.seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
