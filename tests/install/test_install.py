"""What a person meets who installs the package with pip and uses it from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

IMPORT_AND_USE = "import torch; print(torch.ones(3, device='neuron') + 1)"


def test_import_torch_alone_brings_the_device(run_installed: Run) -> None:
    result = run_installed(IMPORT_AND_USE)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "tensor([2., 2., 2.], device='neuron:0')\n"
    assert "neuron" not in result.stderr  # PyTorch itself warns where numpy is absent


def test_wheel_holds_the_package_and_nothing_else(site_packages: Path) -> None:
    (metadata,) = site_packages.glob("torchneuron-*.dist-info")
    record = [line.split(",")[0] for line in (metadata / "RECORD").read_text().splitlines()]
    command = os.path.relpath(site_packages.parents[2] / "bin" / "torchneuron", site_packages)
    assert command in record
    assert {name.split("/")[0] for name in record if name != command} == {"torchneuron", metadata.name}
    sources = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "torchneuron").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    packaged = {name for name in record if name.startswith("torchneuron/") and not name.endswith(".pyc")}
    (extension,) = packaged - sources
    assert extension.startswith("torchneuron/_C.")
    assert sources <= packaged
    text = (metadata / "METADATA").read_text()
    assert "Requires-Dist: torch==2.13.*" in text
    assert "License-Expression: Apache-2.0" in text
    assert (metadata / "licenses" / "LICENSE").read_text() == (PROJECT / "LICENSE").read_text()


def test_command_is_installed(site_packages: Path) -> None:
    command = site_packages.parents[2] / "bin" / "torchneuron"
    result = subprocess.run([command, "ops", "aten::nonzero"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "nonzero.out" in result.stdout


def test_extension_names_no_folder_of_the_build(site_packages: Path) -> None:
    (extension,) = (site_packages / "torchneuron").glob("_C.*.so")
    dynamic = subprocess.run(["readelf", "-d", extension], check=True, capture_output=True, text=True).stdout
    assert "libtorch_cpu.so" in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert str(PROJECT).encode() not in extension.read_bytes()


def test_import_starts_no_thread(run_installed: Run) -> None:
    count = "import os, torch; print(len(os.listdir('/proc/self/task')))"
    assert run_installed(count).stdout == run_installed(count, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


@pytest.fixture
def package_copy(site_packages: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the installed package, to damage; first on the path, it is what torch autoloads."""
    shutil.copytree(site_packages / "torchneuron", tmp_path / "damaged" / "torchneuron")
    return tmp_path / "damaged"


def cut_short(library: bytes) -> bytes:
    """As after a copy that was broken off."""
    return library[:40]


def of_another_torch(library: bytes) -> bytes:
    """As when built against another PyTorch: a function that it needs has another name."""
    name = b"_ZN3c1010TensorImpl"
    assert name in library
    return library.replace(name, name[:-4] + b"Kern")


@pytest.mark.parametrize(("damage", "reason"), [(cut_short, "file too short"), (of_another_torch, "undefined symbol")])
def test_library_that_cannot_load_is_told_at_first_use(
    damage: Callable[[bytes], bytes], reason: str, package_copy: Path, run_installed: Run
) -> None:
    (extension,) = (package_copy / "torchneuron").glob("_C.*.so")
    extension.write_bytes(damage(extension.read_bytes()))
    plain = run_installed("import torch; print(torch.ones(2) + 1)", PYTHONPATH=str(package_copy))
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == "tensor([2., 2.])\n"
    assert "neuron" not in plain.stderr
    used = run_installed(IMPORT_AND_USE, PYTHONPATH=str(package_copy))
    assert used.returncode == 1
    assert "the device 'neuron' is not available" in used.stderr
    assert str(extension) in used.stderr and reason in used.stderr


def test_another_torch_gets_one_line(package_copy: Path, run_installed: Run) -> None:
    package = package_copy / "torchneuron" / "__init__.py"
    text = package.read_text()
    assert 'BUILT_FOR_TORCH = "2.13"' in text
    package.write_text(text.replace('BUILT_FOR_TORCH = "2.13"', 'BUILT_FOR_TORCH = "2.99"'))
    asked = run_installed("import torch; print(torch.neuron.is_available())", PYTHONPATH=str(package_copy))
    assert asked.stdout == "False\n"
    result = run_installed("import torch; print(torch.ones(2) + 1)", PYTHONPATH=str(package_copy))
    assert result.stdout == "tensor([2., 2.])\n"
    (line,) = [line for line in result.stderr.splitlines() if "neuron" in line]
    assert "built for PyTorch 2.99" in line and "this is PyTorch 2.13" in line
    assert "rebuild" in line and "pip install" in line
