"""Train a small GPT on real text and a convolutional net on real digits, on `neuron` and on `cpu`, and compare.

    python examples/demo.py

Prints a sample of the text that the GPT writes and a closing table, and leaves the loss curves as PNG files in
`demo-output/`. The two training scripts, train_gpt.py and train_digits.py, know nothing of `neuron` but the word.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import matplotlib
import torch
import train_digits
import train_gpt
from train_digits import DigitsRun
from train_gpt import GPTRun

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Run = TypeVar("Run")
COLOURS = {"neuron": "#d9480f", "cpu": "#1864ab"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt-steps", type=int, default=800)
    parser.add_argument("--digits-epochs", type=int, default=12)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    arguments = parser.parse_args()

    began = time.perf_counter()
    print(f"neuron:0 is {torch.neuron.get_device_properties(0)}")
    print(f"PyTorch {torch.__version__}, threads: {torch.get_num_threads()}\n")

    gpt = {device: in_new_process(train_gpt.train, device, arguments.gpt_steps) for device in COLOURS}
    digits = {device: in_new_process(train_digits.train, device, arguments.digits_epochs) for device in COLOURS}

    arguments.output.mkdir(parents=True, exist_ok=True)
    pictures = [
        draw_losses({d: run.losses for d, run in gpt.items()}, "GPT, King James poetry", arguments.output / "gpt.png"),
        draw_losses({d: run.losses for d, run in digits.items()}, "Conv net, digits", arguments.output / "digits.png"),
        draw_predictions(digits["neuron"], arguments.output / "predictions.png"),
    ]
    print("\nWritten by the GPT on neuron:\n")
    print("\n".join("    " + line for line in gpt["neuron"].sample.splitlines()))
    print("\n" + table(gpt, digits))
    print(f"\n{time.perf_counter() - began:.0f} s in all. Pictures:")
    for picture in pictures:
        print(f"    {picture}")


def in_new_process(train: Callable[[str, int], Run], device: str, amount: int) -> Run:
    """`train(device, amount)`, where no other run left threads or memory behind, so that times can be compared."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(train_as_cpu_draws, train, device, amount).result()


def train_as_cpu_draws(train: Callable[[str, int], Run], device: str, amount: int) -> Run:
    """Dropout draws on `neuron` the numbers that it draws on `cpu`, so that losses can be compared."""
    torch.neuron.match_cpu_random()
    return train(device, amount)


def table(gpt: dict[str, GPTRun], digits: dict[str, DigitsRun]) -> str:
    rows = [("", "neuron", "cpu", "neuron : cpu")]

    def add(title: str, neuron: float, cpu: float, form: str) -> None:
        rows.append((title, format(neuron, form), format(cpu, form), f"{neuron / cpu:.3f}"))

    add("GPT: last loss", gpt["neuron"].losses[-1], gpt["cpu"].losses[-1], ".4f")
    add("GPT: validation loss", gpt["neuron"].validation_loss, gpt["cpu"].validation_loss, ".4f")
    add("GPT: tokens/s", gpt["neuron"].tokens_per_second, gpt["cpu"].tokens_per_second, ",.0f")
    add("GPT: seconds", gpt["neuron"].seconds, gpt["cpu"].seconds, ".1f")
    add("Digits: test accuracy", digits["neuron"].accuracy, digits["cpu"].accuracy, ".1%")
    add("Digits: images/s", digits["neuron"].images_per_second, digits["cpu"].images_per_second, ",.0f")
    add("Digits: seconds", digits["neuron"].seconds, digits["cpu"].seconds, ".1f")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) for row in rows]
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def draw_losses(losses: dict[str, list[float]], title: str, path: Path) -> Path:
    """The losses of both devices, and below them how far the two are apart."""
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8, 5.5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    for device, style in (("cpu", {"linewidth": 3.5, "alpha": 0.35}), ("neuron", {"linewidth": 1.0})):
        upper.plot(losses[device], color=COLOURS[device], label=device, **style)
    upper.set(title=title, ylabel="training loss")
    upper.legend(frameon=False)
    apart = [abs(a - b) / abs(b) for a, b in zip(losses["neuron"], losses["cpu"], strict=True)]
    same = apart.count(0.0)
    lower.semilogy([max(value, 1e-9) for value in apart], ".", color="#495057", markersize=2)
    lower.set(xlabel="step", ylabel="relative\ndifference", ylim=(5e-10, 1e-2), yticks=(1e-9, 1e-6, 1e-3))
    lower.set_yticklabels(("0", "$10^{-6}$", "$10^{-3}$"))
    lower.set_title(f"the same number in {same} of {len(apart)} steps", fontsize=9, loc="right", pad=3)
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path


def draw_predictions(run: DigitsRun, path: Path) -> Path:
    """The first 40 test digits with what the net says; a wrong answer is red and followed by the right one."""
    figure, grid = plt.subplots(4, 10, figsize=(8, 4), layout="constrained")
    figure.suptitle(f"Test digits on neuron: {run.accuracy:.1%} of {len(run.labels)} right")
    for axes, image, label, prediction in zip(grid.flat, run.images, run.labels.tolist(), run.predictions.tolist()):
        axes.imshow(image, cmap="gray_r")
        axes.set_axis_off()
        right = label == prediction
        title = str(prediction) if right else f"{prediction} not {label}"
        axes.set_title(title, fontsize=9, color="black" if right else "red", pad=2)
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path


if __name__ == "__main__":
    main()
