"""Train a small convolutional net on scikit-learn's handwritten digits (1,797 images of 8x8 pixels).

    python examples/train_digits.py --device neuron
    python examples/train_digits.py --device cpu

Nothing else differs between the devices.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from models import ConvNet
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


@dataclass
class DigitsRun:
    losses: list[float]  # of each training step
    accuracy: float  # on the test images, 0 to 1
    seconds: float  # of the training steps
    images_per_second: float
    images: Tensor  # test images (n, 8, 8) on the CPU
    labels: Tensor  # what they are (n,)
    predictions: Tensor  # what the net says (n,)


def digits(test_images: int = 360, seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Training and test images (1, 8, 8) in [0, 1] with their labels."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    targets = torch.tensor(labels, dtype=torch.int64)[order]
    return (
        TensorDataset(images[test_images:], targets[test_images:]),
        TensorDataset(images[:test_images], targets[:test_images]),
    )


def train(
    device: str | torch.device, epochs: int = 12, batch_size: int = 64, learning_rate: float = 4e-3, seed: int = 0
) -> DigitsRun:
    device = torch.device(device)
    torch.manual_seed(seed)
    training, test = digits()
    shuffled = torch.Generator().manual_seed(seed)
    loader = DataLoader(training, batch_size, shuffle=True, generator=shuffled, pin_memory=True)
    model = ConvNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=epochs * len(loader))

    losses = []
    began = time.perf_counter()
    with tqdm(total=epochs * len(loader), desc=f"conv net on {device}", unit="step") as bar:
        for _ in range(epochs):
            for images, labels in loader:
                images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.detach())
                bar.update()
            bar.set_postfix(loss=f"{losses[-1].item():.3f}")
    history = torch.stack(losses).tolist()
    seconds = time.perf_counter() - began

    model.eval()
    images, labels = test.tensors
    with torch.no_grad():
        predictions = model(images.to(device)).argmax(dim=1).cpu()
    return DigitsRun(
        losses=history,
        accuracy=(predictions == labels).float().mean().item(),
        seconds=seconds,
        images_per_second=epochs * len(training) / seconds,
        images=images[:, 0],
        labels=labels,
        predictions=predictions,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    run = train(arguments.device, arguments.epochs)
    print(
        f"{arguments.device}: {run.accuracy:.1%} of {len(run.labels)} test images right, "
        f"{run.images_per_second:,.0f} images/s, {run.seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
