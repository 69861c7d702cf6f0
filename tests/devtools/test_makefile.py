"""What `make install`, and so `make demo`, says where it cannot work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def install(virtual_environment: Path, python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `make install` for a new virtual environment."""
    command = ["make", "--no-print-directory", "install", f"VENV={virtual_environment}", f"PYTHON={python}"]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_another_python_is_named_before_anything_is_made(tmp_path: Path) -> None:
    other = tmp_path / "python3.12"
    other.write_text("#!/bin/sh\nexit 1\n")  # what it answers to whether it is the right one
    other.chmod(0o755)

    run = install(tmp_path / "venv", str(other))

    assert run.returncode != 0
    assert run.stdout.splitlines() == ["Partita needs Python 3.11; try: make PYTHON=/path/to/python3.11"]
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("python", ["python-of-nobody", "", "/my tools/python3"])
def test_a_missing_python_is_named(python: str, tmp_path: Path) -> None:
    run = install(tmp_path / "venv", python)

    assert run.returncode != 0
    assert run.stdout.startswith(f"No Python '{python}' here; install Python 3.11, or")
    assert not (tmp_path / "venv").exists()


def test_without_a_package_index_the_last_words_say_what_to_do(tmp_path: Path) -> None:
    nobody = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}

    run = install(tmp_path / "venv", sys.executable, **nobody)

    assert run.returncode != 0
    assert "PIP_INDEX_URL=https://HOST/simple make install" in run.stdout.splitlines()[-1]
    assert not (tmp_path / "venv/.installed").exists()
