"""Environment variables say which machine is emulated, which of its cores are seen, and which one is current."""

from __future__ import annotations

from collections.abc import Callable

import pytest

GIB = 2**30
SHOW = """
    import torch
    n = torch.neuron.device_count()
    print(n, torch.neuron.get_device_properties(0).total_memory if n else 0, torch.neuron.current_device() if n else -1)
"""


def show(run_script: Callable, **environment: str) -> list[int]:
    result = run_script(SHOW, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return [int(word) for word in result.stdout.split()]


# Chips, cores and memory as AWS's architecture pages for trn1, inf2, trn2 and trn3 give them.
@pytest.mark.parametrize(
    ("instance", "devices", "gib"),
    [
        ("trn1.2xlarge", 2, 16),
        ("trn1.32xlarge", 32, 16),
        ("trn1n.32xlarge", 32, 16),
        ("inf2.xlarge", 2, 16),
        ("inf2.8xlarge", 2, 16),
        ("inf2.24xlarge", 12, 16),
        ("inf2.48xlarge", 24, 16),
        ("trn2.3xlarge", 4, 24),
        ("trn2.48xlarge", 64, 24),
        ("trn2u.48xlarge", 64, 24),
        ("trn2-ultraserver", 64, 24),
        ("trn3-gen1-ultraserver", 64, 36),
        ("trn3-gen2-ultraserver", 16, 36),
    ],
)
def test_instances(instance: str, devices: int, gib: int, run_script: Callable) -> None:
    assert show(run_script, TORCHNEURON_INSTANCE=instance) == [devices, gib * GIB, 0]


@pytest.mark.parametrize(
    ("environment", "devices", "gib"),
    [
        ({}, 4, 24),
        ({"NEURON_LOGICAL_NC_CONFIG": "2"}, 4, 24),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8, 12),
        ({"NEURON_RT_VISIBLE_CORES": "0-1"}, 2, 24),
        ({"NEURON_RT_VISIBLE_CORES": "0,2"}, 2, 24),
        ({"NEURON_RT_VISIBLE_CORES": "3"}, 1, 24),
        ({"NEURON_RT_VISIBLE_CORES": "0,2-3"}, 3, 24),
        ({"NEURON_RT_NUM_CORES": "2"}, 2, 24),
        ({"NEURON_LOGICAL_NC_CONFIG": "1", "NEURON_RT_VISIBLE_CORES": "4-7"}, 4, 12),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_cores(environment: dict[str, str], devices: int, gib: int, run_script: Callable) -> None:
    assert show(run_script, **environment) == [devices, gib * GIB, 0]


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("TORCHNEURON_INSTANCE", "trn9.large", ["trn2.3xlarge", "trn1.32xlarge", "inf2.48xlarge"]),
        ("NEURON_LOGICAL_NC_CONFIG", "3", ["1", "2"]),
        ("NEURON_LOGICAL_NC_CONFIG", "two", ["1", "2"]),
        ("NEURON_RT_VISIBLE_CORES", "0-4", ["0-3"]),
        ("NEURON_RT_VISIBLE_CORES", "9", ["0-3"]),
        ("NEURON_RT_VISIBLE_CORES", "3-1", ["0-3"]),
        ("NEURON_RT_VISIBLE_CORES", "all", ["0-3"]),
        ("NEURON_RT_VISIBLE_CORES", "1,1", ["0-3"]),
        ("NEURON_RT_NUM_CORES", "5", ["4"]),
        ("NEURON_RT_NUM_CORES", "-1", ["4"]),
        ("NEURON_RT_NUM_CORES", "some", ["4"]),
    ],
)
def test_wrong_values_are_named(variable: str, value: str, allowed: list[str], run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        assert torch.ones(2).sum().item() == 2
        try:
            print(torch.ones(1, device="neuron").device)
        except Exception as error:
            print("ERROR", error)
        """,
        **{variable: value},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("ERROR"), result.stdout
    assert variable in result.stdout and value in result.stdout
    assert all(text in result.stdout for text in allowed), result.stdout


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


@pytest.mark.parametrize(("rank", "visible", "device"), [("2", "0-3", 2), ("1", "2-3", 1), ("0", "3", 0)])
def test_local_rank_is_where_a_process_starts(rank: str, visible: str, device: int, run_script: Callable) -> None:
    found = show(run_script, LOCAL_RANK=rank, NEURON_RT_VISIBLE_CORES=visible)
    assert found[2] == device


def test_local_rank_with_one_visible_core_each(run_script: Callable) -> None:
    assert show(run_script, LOCAL_RANK="3", NEURON_RT_VISIBLE_CORES="3")[::2] == [1, 0]


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
