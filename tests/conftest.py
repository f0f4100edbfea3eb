"""Fixtures for tests of every folder."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_script(code, **environment)` runs code as a script in a new process and returns its result and output."""

    def run(code: str, *, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(code))
        return subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
