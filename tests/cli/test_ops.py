"""`torchneuron ops`: how each overload runs, against what running it shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchneuron.cli.ops import overloads


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "torchneuron.cli", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    "name, how",
    [
        ("add.Tensor", "generated"),
        ("embedding", "launch"),
        ("matmul", "composite"),
        ("bincount", "waits"),
        ("_cudnn_rnn", "none"),
    ],
)
def test_how(name: str, how: str) -> None:
    assert {overload.name: overload.how for overload in overloads([name])}[name] == how


@pytest.mark.parametrize("pattern", ["mm", "aten::mm", "aten::m[m]"])
def test_a_pattern_without_a_dot_takes_all_overloads(pattern: str) -> None:
    assert {overload.name for overload in overloads([pattern])} >= {"mm", "mm.out"}
    assert [overload.name for overload in overloads(["mm.out"])] == ["mm.out"]


def test_what_waits_is_counted_as_a_fallback() -> None:
    x = torch.arange(6.0, device="neuron").view(2, 3)
    torch.neuron.clear_op_tracking()
    x.long().view(-1).bincount(), x + x, torch.nn.functional.embedding(torch.tensor([1], device="neuron"), x)
    waited = {name.removeprefix("aten::") for name in torch.neuron.get_fallback_ops()}
    hows = {o.name: o.how for o in overloads(["bincount", "add.Tensor", "embedding"])}
    assert waited == {"bincount"}
    assert (hows["bincount"], hows["add.Tensor"], hows["embedding"]) == ("waits", "generated", "launch")


def test_all_of_aten_is_listed() -> None:
    listed = {overload.name for overload in overloads()}
    assert len(listed) > 3000
    assert {f"{name}.Tensor" for name in ("add", "sub", "mul", "div")} <= listed


def test_table_and_counts() -> None:
    result = command("ops", "add.*", "embedding")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert ["embedding", "launch", "csrc/ops/embedding.cpp"] in [line.split() for line in lines]
    assert ["add.Tensor", "generated"] in [line.split() for line in lines]
    assert "generated" in result.stderr and "launch" in result.stderr


def test_json_and_filter() -> None:
    result = command("ops", "--how", "waits", "--how", "none", "--json", "b*")
    listed = json.loads(result.stdout)
    assert {"name": "bincount", "how": "waits", "where": ""} in listed
    assert {overload["how"] for overload in listed} <= {"waits", "none"}


@pytest.mark.parametrize("arguments", [["ops", "no_such_operator"], ["ops", "--how", "never"], ["unknown"], []])
def test_wrong_use(arguments: list[str]) -> None:
    result = command(*arguments)
    assert result.returncode != 0 and result.stderr and "Traceback" not in result.stderr


def test_the_command_is_installed() -> None:
    result = subprocess.run([Path(sys.executable).with_name("torchneuron"), "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and "ops" in result.stdout


def test_a_reader_that_has_had_enough() -> None:
    script = f"{sys.executable} -m torchneuron.cli ops | head -n 1"
    result = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True)
    assert result.returncode == 0 and "Traceback" not in result.stderr
    assert len(result.stdout.splitlines()) == 1
