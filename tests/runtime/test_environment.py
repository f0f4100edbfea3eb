"""Environment variables say which machine is emulated, which of its cores are seen, and which one is current."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import torch

GIB = 2**30
Case = tuple[dict[str, str], int, int]

# Chips, cores and memory as AWS's architecture pages for trn1, inf2, trn2 and trn3 give them.
INSTANCES: dict[str, tuple[int, int]] = {
    "trn1.2xlarge": (2, 16),
    "trn1.32xlarge": (32, 16),
    "trn1n.32xlarge": (32, 16),
    "inf2.xlarge": (2, 16),
    "inf2.8xlarge": (2, 16),
    "inf2.24xlarge": (12, 16),
    "inf2.48xlarge": (24, 16),
    "trn2.3xlarge": (4, 24),
    "trn2.48xlarge": (64, 24),
    "trn2u.48xlarge": (64, 24),
    "trn2-ultraserver": (64, 24),
    "trn3-gen1-ultraserver": (64, 36),
    "trn3-gen2-ultraserver": (16, 36),
}
# The environment, and the number of devices and the GiB of each.
SELECTIONS: list[Case] = [
    ({}, 4, 24),
    ({"NEURON_LOGICAL_NC_CONFIG": "2"}, 4, 24),
    ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8, 12),
    ({"NEURON_RT_VISIBLE_CORES": "0-1"}, 2, 24),
    ({"NEURON_RT_VISIBLE_CORES": "0,2"}, 2, 24),
    ({"NEURON_RT_VISIBLE_CORES": "3"}, 1, 24),
    ({"NEURON_RT_VISIBLE_CORES": "0,2-3"}, 3, 24),
    ({"NEURON_RT_NUM_CORES": "2"}, 2, 24),
    ({"NEURON_LOGICAL_NC_CONFIG": "1", "NEURON_RT_VISIBLE_CORES": "4-7"}, 4, 12),
]
# A variable, a wrong value, and words of what it may be.
WRONG: list[tuple[str, str, tuple[str, ...]]] = [
    ("TORCHNEURON_INSTANCE", "trn9.large", ("trn2.3xlarge", "trn1.32xlarge", "inf2.48xlarge")),
    ("NEURON_LOGICAL_NC_CONFIG", "3", ("1", "2")),
    ("NEURON_LOGICAL_NC_CONFIG", "two", ("1", "2")),
    ("NEURON_RT_VISIBLE_CORES", "0-4", ("0-3",)),
    ("NEURON_RT_VISIBLE_CORES", "9", ("0-3",)),
    ("NEURON_RT_VISIBLE_CORES", "3-1", ("0-3",)),
    ("NEURON_RT_VISIBLE_CORES", "all", ("0-3",)),
    ("NEURON_RT_VISIBLE_CORES", "1,1", ("0-3",)),
    ("NEURON_RT_NUM_CORES", "5", ("4",)),
    ("NEURON_RT_NUM_CORES", "-1", ("4",)),
    ("NEURON_RT_NUM_CORES", "some", ("4",)),
    ("LOCAL_RANK", "x", ("0 or more", "-1")),
    ("LOCAL_RANK", "1.5", ("0 or more", "-1")),
    ("LOCAL_RANK", "-2", ("0 or more", "-1")),
]
# LOCAL_RANK, the visible cores, and the index of the device that the process starts with.
RANKS = [
    ("2", "0-3", 2),
    ("1", "2-3", 1),
    ("0", "3", 0),
    ("3", "3", 0),
    ("-1", "0-3", 0),
    ("", "0-3", 0),
    ("9", "0-3", 1),
]


def name(environment: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in environment.items()) or "nothing"


CASES = {
    name(environment): environment
    for environment in (
        *({"TORCHNEURON_INSTANCE": instance} for instance in INSTANCES),
        *(environment for environment, _, _ in SELECTIONS),
        *({variable: value} for variable, value, _ in WRONG),
        *({"LOCAL_RANK": rank, "NEURON_RT_VISIBLE_CORES": cores} for rank, cores, _ in RANKS),
    )
}


@pytest.fixture(scope="module")
def answers() -> dict[str, list[int] | str]:
    """For each case: [devices, bytes of the first, current device, device of a new tensor], or the error of making one.

    The environment is read when the device is first asked for, so one process forks a child for each case.
    """
    script = f"""
        import json, os, sys, torch
        def ask():
            assert torch.ones(2).sum().item() == 2
            try:
                made = torch.ones(1, device="neuron").device.index
            except Exception as error:
                return str(error)
            memory = torch.neuron.get_device_properties(0).total_memory
            return [torch.neuron.device_count(), memory, torch.neuron.current_device(), made]
        answers = {{}}
        for name, environment in {CASES!r}.items():
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.environ.update(environment)
                os.write(writer, json.dumps(ask()).encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                answers[name] = json.load(pipe)
            os.wait()
        json.dump(answers, sys.stdout)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.mark.parametrize("instance", INSTANCES)
def test_instances(instance: str, answers: dict) -> None:
    devices, gib = INSTANCES[instance]
    assert answers[f"TORCHNEURON_INSTANCE={instance}"] == [devices, gib * GIB, 0, 0]


@pytest.mark.parametrize(("environment", "devices", "gib"), SELECTIONS, ids=[name(case[0]) for case in SELECTIONS])
def test_cores(environment: dict[str, str], devices: int, gib: int, answers: dict) -> None:
    assert answers[name(environment)] == [devices, gib * GIB, 0, 0]


@pytest.mark.parametrize(("variable", "value", "allowed"), WRONG, ids=[f"{case[0]}={case[1]}" for case in WRONG])
def test_wrong_values_are_named(variable: str, value: str, allowed: tuple[str, ...], answers: dict) -> None:
    error = answers[f"{variable}={value}"]
    assert isinstance(error, str)
    assert variable in error and value in error
    assert all(text in error for text in allowed), error


@pytest.mark.parametrize(("rank", "cores", "device"), RANKS)
def test_local_rank_is_where_a_process_starts(rank: str, cores: str, device: int, answers: dict) -> None:
    assert answers[f"LOCAL_RANK={rank} NEURON_RT_VISIBLE_CORES={cores}"][2:] == [device, device]


def test_asking_in_a_wrong_environment_answers_no_and_says_why(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        print(torch.neuron.is_available(), torch.neuron.device_count(), torch.accelerator.is_available())
        """,
        TORCHNEURON_INSTANCE="trn9.large",
    )
    assert (result.returncode, result.stdout.split()) == (0, ["False", "0", "False"])
    assert result.stderr.count("TORCHNEURON_INSTANCE='trn9.large'") == 1 and "trn2.3xlarge" in result.stderr


def test_local_rank_holds_for_threads_too(run_script: Callable) -> None:
    result = run_script(
        """
        import threading, torch
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="neuron").device.index))
        thread.start(); thread.join()
        x = torch.ones(1, device="neuron", requires_grad=True)
        x.register_hook(lambda grad: seen.append(torch.neuron.current_device()))
        (x * 2).backward()
        print(*seen)
        """,
        LOCAL_RANK="1",
    )
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["1", "1"], "")


def test_no_visible_core(run_script: Callable) -> None:
    """Seeding is for scripts that run anywhere; everything else says why there is no device."""
    result = run_script(
        """
        import torch
        torch.manual_seed(0), torch.neuron.manual_seed(1), torch.neuron.manual_seed_all(1), torch.neuron.seed_all()
        assert torch.neuron.device_count() == 0 and not torch.neuron.is_available()
        for use in (
            torch.neuron.synchronize, torch.neuron.Stream, torch.neuron.memory_allocated, torch.neuron.get_device_name,
            torch.neuron.get_rng_state, torch.neuron.init, lambda: torch.neuron.set_device(0),
            lambda: torch.Generator("neuron"), lambda: torch.ones(1, device="neuron"),
        ):
            try:
                use()
            except RuntimeError as error:
                assert "No neuron device is visible: NEURON_RT_VISIBLE_CORES" in str(error), error
            else:
                raise AssertionError(use)
        """,
        NEURON_RT_VISIBLE_CORES="",
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("index", [4, 127, 128, 300, -300])
def test_no_such_device(index: int) -> None:
    for use in (torch.neuron.set_device, torch.neuron.get_device_properties, torch.neuron.Stream):
        with pytest.raises(ValueError, match=rf"neuron device index must be in \[0, 3\], but got {index}"):
            use(index)
