"""How the package gets into PyTorch, and what stands in where it cannot."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
USE = "assert (torch.ones(2, device='neuron') + 1).tolist() == [2, 2]"


@pytest.mark.parametrize(
    ("script", "autoload"),
    [
        ("import torch", "1"),
        ("import torchneuron, torch", "1"),
        ("import torch, torchneuron", "1"),
        ("import torchneuron, torch", "0"),
        ("import torch, torchneuron", "0"),
    ],
)
def test_order_of_imports(script: str, autoload: str, run_script: Run) -> None:
    result = run_script(f"{script}\n{USE}\n", TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_autoload_can_be_switched_off(run_script: Run) -> None:
    result = run_script(
        "import sys, torch\nassert not hasattr(torch, 'neuron') and 'torchneuron' not in sys.modules",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.returncode == 0, result.stderr


def test_import_does_not_use_the_device(run_script: Run) -> None:
    result = run_script(
        """
        import os, torch
        assert not torch.neuron.is_initialized() and torch.neuron._initialized is False
        torch.manual_seed(1)
        torch.neuron.device_count(), torch.neuron.get_device_properties(0), torch.neuron.memory_stats()
        torch.neuron.get_rng_state()
        torch.neuron.empty_cache()
        assert not torch.neuron.is_initialized()
        calls = []
        torch.neuron._lazy_call(lambda: calls.append(1))
        assert calls == []
        torch.ones(1, device="neuron")
        assert torch.neuron.is_initialized() and torch.neuron._initialized is True and calls == [1]
        torch.neuron._lazy_call(lambda: calls.append(2))
        assert calls == [1, 2]
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_another_torch(run_script: Run) -> None:
    result = run_script(
        """
        import torch
        torch.__version__ = "2.99.0"
        import torchneuron
        torch.manual_seed(0)
        x = torch.ones(1)
        for use in (lambda: torch.ones(1, device="neuron"), lambda: x.neuron(), lambda: torch.neuron.Stream):
            try:
                use()
            except RuntimeError as error:
                assert "2.99.0" in str(error) and isinstance(error.__cause__, ImportError), error
            else:
                raise SystemExit("no error")
        assert not hasattr(torch.neuron, "memory_allocated")
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert "PyTorch 2.13" in line and "2.99.0" in line and "pip install" in line


def test_library_that_cannot_load(run_script: Run) -> None:
    result = run_script(
        """
        import sys
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name == "torchneuron._C":
                    raise ImportError("libnothing.so.1: cannot open shared object file")
        sys.meta_path.insert(0, Refuse())
        import warnings, torch
        torch.manual_seed(0)
        assert torch.ones(2).sum().item() == 2
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert not torch.accelerator.is_available()
            assert not torch.neuron.is_available() and torch.neuron.device_count() == 0
        (warning,) = seen
        assert "libnothing.so.1" in str(warning.message)
        for use in (lambda: torch.ones(1, device="neuron"), lambda: torch.ones(1).to("neuron"), lambda: torch.neuron.x):
            try:
                use()
            except RuntimeError as error:
                assert "libnothing.so.1" in str(error) and "libnothing.so.1" in str(error.__cause__), error
            else:
                raise SystemExit("no error")
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_another_backend_has_the_place(run_script: Run) -> None:
    result = run_script(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torchneuron
        try:
            torch.neuron.synchronize()
        except RuntimeError as error:
            assert "'other'" in str(error), error
        assert torch.device("other:0").type == "other"
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_torch_neuronx_is_findable(run_script: Run) -> None:
    result = run_script(
        """
        import torch, importlib.util
        spec = importlib.util.find_spec("torch_neuronx")
        assert spec is not None and spec.name == "torch_neuronx"
        import torch_neuronx
        assert "torchneuron" in torch_neuronx.__doc__
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_an_installed_torch_neuronx_is_left_alone(tmp_path: Path, run_script: Run) -> None:
    (tmp_path / "torch_neuronx.py").write_text("name = 'the real one'\n")
    result = run_script(
        f"import torch, torch_neuronx\nassert torch_neuronx.name == 'the real one'\n{USE}\n", PYTHONPATH=str(tmp_path)
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_an_installed_provider_of_neuron_goes_first(tmp_path: Path, run_script: Run) -> None:
    (tmp_path / "torch_neuronx.py").write_text(
        "import torch, types\n"
        "def _autoload():\n"
        "    torch.utils.rename_privateuse1_backend('neuron')\n"
        "    torch._register_device_module('neuron', types.ModuleType('torch_neuronx.neuron'))\n"
    )
    metadata = tmp_path / "torch_neuronx-2.13.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.13.3\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_neuronx = torch_neuronx:_autoload\n")
    result = run_script(
        "import torch\nassert torch.neuron.__name__ == 'torch_neuronx.neuron'\n", PYTHONPATH=str(tmp_path)
    )
    assert (result.returncode, result.stderr) == (0, "")
