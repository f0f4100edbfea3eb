"""What is said of a device, and that it says it is emulated."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import torch

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_properties_of_the_default_instance() -> None:
    properties = torch.neuron.get_device_properties(1)
    # TorchTitan compares the name with the chips' to choose the peak rate; TRL reports it.
    assert properties.name == "trn2"
    assert properties.total_memory == 24 * 2**30
    assert (properties.multi_processor_count, properties.major, properties.minor) == (2, 3, 0)
    assert (properties.instance, properties.core_index, properties.chip_index) == ("trn2.3xlarge", 1, 0)
    assert properties.is_emulated is True
    assert "is_emulated=True" in repr(properties) and "trn2" in repr(properties)
    assert properties == torch.neuron.get_device_properties("neuron:1")
    assert properties != torch.neuron.get_device_properties(0)
    assert torch.neuron.get_device_properties() == torch.neuron.get_device_properties(torch.device("neuron"))


def test_names() -> None:
    name = torch.neuron.get_device_name(2)
    assert "neuron:2" in name and "trn2" in name and "emulated" in name
    assert torch.neuron.get_device_name() == torch.neuron.get_device_name("neuron:0")


def test_uuids_are_stable_and_differ() -> None:
    first, second = (torch.neuron.get_device_properties(index).uuid for index in (0, 1))
    assert first != second and first == torch.neuron.get_device_properties(0).uuid


@pytest.mark.parametrize(
    ("instance", "lnc", "expected"),
    [
        ("trn1.2xlarge", "1", "trn1 2 16 1 (0, 0) (1, 0)"),
        ("inf2.24xlarge", "1", "inf2 2 16 1 (0, 0) (11, 5)"),
        ("trn2.48xlarge", "2", "trn2 3 24 2 (0, 0) (63, 15)"),
        ("trn3-gen1-ultraserver", "2", "trn3 4 36 2 (0, 0) (63, 15)"),
        ("trn3-gen2-ultraserver", "1", "trn3 4 18 1 (0, 0) (31, 3)"),
    ],
)
def test_properties_of_other_instances(instance: str, lnc: str, expected: str, run_script: Run) -> None:
    result = run_script(
        """
        import torch
        first, last = (torch.neuron.get_device_properties(i) for i in (0, torch.neuron.device_count() - 1))
        print(first.name, first.major, first.total_memory >> 30, first.multi_processor_count,
              (first.core_index, first.chip_index), (last.core_index, last.chip_index))
        """,
        TORCHNEURON_INSTANCE=instance,
        NEURON_LOGICAL_NC_CONFIG=lnc,
    )
    assert (result.stdout.strip(), result.stderr) == (expected, "")


def test_restricted_cores_keep_their_own_numbers(run_script: Run) -> None:
    result = run_script(
        """
        import torch
        print(*[torch.neuron.get_device_properties(i).core_index for i in range(torch.neuron.device_count())])
        """,
        NEURON_RT_VISIBLE_CORES="3,1",
        NEURON_RT_NUM_CORES="4",
    )
    assert (result.stdout.strip(), result.stderr) == ("3 1", "")


def test_no_visible_core_is_no_device(run_script: Run) -> None:
    result = run_script(
        """
        import torch
        assert torch.neuron.device_count() == 0 and not torch.neuron.is_available()
        assert torch.neuron.default_generators == ()
        torch.manual_seed(0)
        try:
            torch.ones(1, device="neuron")
        except RuntimeError as error:
            print(error)
        """,
        NEURON_RT_VISIBLE_CORES="",
    )
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "NEURON_RT_VISIBLE_CORES" in result.stdout


def test_more_cores_than_device_numbers(run_script: Run) -> None:
    code = "import torch; print(torch.neuron.device_count(), torch.ones(1, device='neuron:126').device)"
    result = run_script(
        code, TORCHNEURON_INSTANCE="trn2.48xlarge", NEURON_LOGICAL_NC_CONFIG="1", NEURON_RT_VISIBLE_CORES="1-127"
    )
    assert (result.stdout.strip(), result.stderr) == ("127 neuron:126", "")
    result = run_script(code, TORCHNEURON_INSTANCE="trn2.48xlarge", NEURON_LOGICAL_NC_CONFIG="1")
    assert result.returncode != 0 and "127" in result.stderr and "NEURON_RT_VISIBLE_CORES" in result.stderr


def test_a_wrong_environment_warns_who_only_asks(run_script: Run) -> None:
    result = run_script(
        """
        import warnings, torch
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert not torch.neuron.is_available() and torch.neuron.device_count() == 0
            assert not torch.accelerator.is_available()
        (warning,) = seen
        print(warning.message)
        torch.manual_seed(0)
        for use in (torch.neuron.init, torch.neuron.get_device_properties, torch.neuron.Stream):
            try:
                use()
            except ValueError as error:
                assert "TORCHNEURON_INSTANCE" in str(error), error
            else:
                raise SystemExit("no error")
        """,
        TORCHNEURON_INSTANCE="trn9",
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "TORCHNEURON_INSTANCE='trn9'" in result.stdout and "trn2.3xlarge" in result.stdout
