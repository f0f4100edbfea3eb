"""The demo and the training scripts, run as a person runs them, with fewer steps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: str, directory: Path) -> str:
    """Standard output of `python examples/<script> …`, which must succeed."""
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def row(output: str, title: str) -> tuple[float, float]:
    """The values for neuron and cpu in the closing table."""
    found = re.search(rf"^{re.escape(title)} +([\d.,]+)%? +([\d.,]+)%? ", output, re.MULTILINE)
    assert found, output
    return float(found[1].replace(",", "")), float(found[2].replace(",", ""))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(directory: Path) -> str:
    return run("demo.py", "--gpt-steps", "60", "--digits-epochs", "4", directory=directory)


def test_demo_learns(demo: str) -> None:
    losses = row(demo, "GPT: validation loss")
    assert max(losses) < 2.8  # nats per character; 73 characters by chance: 4.29
    assert min(row(demo, "Digits: test accuracy")) > 95.0


def test_demo_gives_on_neuron_what_it_gives_on_cpu(demo: str) -> None:
    neuron, cpu = row(demo, "GPT: last loss")
    assert neuron == pytest.approx(cpu, rel=1e-3)
    neuron, cpu = row(demo, "Digits: test accuracy")
    assert neuron == pytest.approx(cpu, abs=0.6)  # two of 360 images


def test_demo_reports_speed(demo: str) -> None:
    assert min(row(demo, "GPT: tokens/s")) > 0
    assert min(row(demo, "Digits: images/s")) > 0


def test_demo_writes_text_and_pictures(demo: str, directory: Path) -> None:
    assert "    The LORD is" in demo
    pictures = re.findall(r"^ +(\S+\.png)$", demo, re.MULTILINE)
    assert len(pictures) == 3
    for picture in pictures:
        data = (directory / picture).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000


@pytest.mark.parametrize("device", ["neuron", "neuron:1", "cpu"])
def test_digits_script_trains_on_any_device(device: str, tmp_path: Path) -> None:
    output = run("train_digits.py", "--device", device, "--epochs", "2", directory=tmp_path)
    found = re.search(rf"^{device}: ([\d.]+)% of 360 test images right", output)
    assert found, output
    assert float(found[1]) > 80.0


def test_gpt_script_trains_on_neuron_by_default(tmp_path: Path) -> None:
    output = run("train_gpt.py", "--steps", "40", directory=tmp_path)
    found = re.search(r"^neuron: validation loss ([\d.]+) nats", output, re.MULTILINE)
    assert found, output
    assert float(found[1]) < 3.0
