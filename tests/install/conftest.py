"""The project installed by pip, with build isolation, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment less what would let the new interpreter see this one's packages."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    return {**kept, **changes}


@pytest.fixture(scope="session")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment that holds only `pip install <project>`. Compiles, so takes minutes once."""
    folder = tmp_path_factory.mktemp("install")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, env=clean_environment())
    python = folder / "venv" / "bin" / "python"
    result = subprocess.run(
        [python, "-m", "pip", "install", "--disable-pip-version-check", str(PROJECT)],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-20_000:]
    yield python
    shutil.rmtree(folder)


@pytest.fixture
def site_packages(installed_python: Path) -> Path:
    """Where the package was installed."""
    (folder,) = installed_python.parents[1].glob("lib/python*/site-packages")
    return folder


@pytest.fixture
def run_installed(installed_python: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_installed(code, **environment)` runs code with the installed package, from an empty folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed_python, "-c", code],
            cwd=elsewhere,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
