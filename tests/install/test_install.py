"""What a person meets who installs the package with pip and uses it from another folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

# On a machine without numpy, PyTorch itself warns; what matters here is that nothing is added.
IMPORT_AND_USE = "import torch; print(torch.ones(3, device='neuron') + 1)"


def test_import_torch_alone_brings_the_device(run_installed: Run) -> None:
    plain = run_installed("import torch; print(torch.ones(3) + 1)", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    result = run_installed(IMPORT_AND_USE)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "tensor([2., 2., 2.], device='neuron:0')\n"
    assert result.stderr == plain.stderr


def test_wheel_holds_the_package_and_nothing_else(site_packages: Path) -> None:
    (metadata,) = site_packages.glob("torchneuron-*.dist-info")
    record = [line.split(",")[0] for line in (metadata / "RECORD").read_text().splitlines()]
    assert {name.split("/")[0] for name in record} == {"torchneuron", metadata.name}
    sources = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "torchneuron").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("_C.")
    }
    packaged = {name for name in record if name.startswith("torchneuron/") and not name.endswith(".pyc")}
    (extension,) = packaged - sources
    assert extension.startswith("torchneuron/_C.")
    assert sources <= packaged
    text = (metadata / "METADATA").read_text()
    assert "Requires-Dist: torch==2.13.*" in text
    assert "License-Expression: Apache-2.0" in text
    assert (metadata / "licenses" / "LICENSE").read_text() == (PROJECT / "LICENSE").read_text()


def test_extension_names_no_folder_of_the_build(site_packages: Path) -> None:
    (extension,) = (site_packages / "torchneuron").glob("_C.*.so")
    dynamic = subprocess.run(["readelf", "-d", extension], check=True, capture_output=True, text=True).stdout
    assert "libtorch_cpu.so" in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert str(PROJECT).encode() not in extension.read_bytes()


def test_import_starts_no_thread(run_installed: Run) -> None:
    count = "import os, torch; print(len(os.listdir('/proc/self/task')))"
    assert run_installed(count).stdout == run_installed(count, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


def test_import_costs_at_most_150_ms(installed_python: Path, tmp_path: Path) -> None:
    figures = tmp_path / "import_time.json"
    script = PROJECT / "benchmarks" / "import_time.py"
    subprocess.run([installed_python, script, "--runs", "7", "--json", figures], check=True, capture_output=True)
    # CPU time: what another process on the machine takes from ours is not the import's.
    assert json.loads(figures.read_text())["extra_cpu_ms"] <= 150


@pytest.fixture
def package_copy(site_packages: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the installed package, to damage; first on the path, it is what torch autoloads."""
    shutil.copytree(site_packages / "torchneuron", tmp_path / "damaged" / "torchneuron")
    return tmp_path / "damaged"


def test_library_cut_short_is_told_at_first_use(package_copy: Path, run_installed: Run) -> None:
    (extension,) = (package_copy / "torchneuron").glob("_C.*.so")
    extension.write_bytes(extension.read_bytes()[:4096])
    plain = run_installed("import torch; print(torch.ones(2) + 1)", PYTHONPATH=str(package_copy))
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == "tensor([2., 2.])\n"
    used = run_installed(IMPORT_AND_USE, PYTHONPATH=str(package_copy))
    assert used.returncode == 1
    assert "torchneuron" in used.stderr and extension.name in used.stderr and "file too short" in used.stderr
