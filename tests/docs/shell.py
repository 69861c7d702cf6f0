"""A reader's shell, into which tests paste the commands of a page, and its programs."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PASTE_SECONDS = 600


def helm_program(folder: Path) -> Path:
    """Write a program `helm` into the folder: Helm's SDK behind the commands that the pages use. Returns the folder."""
    folder.mkdir()
    program = folder / "helm"
    program.write_text(
        f'#!/bin/sh\nexec env PYTHONPATH={os.pathsep.join(sys.path)} {sys.executable} -m tests.docs.helm "$@"\n'
    )
    program.chmod(0o755)
    return folder


class Shell:
    """Runs commands in a folder, with `partita` on PATH and the cluster of `kubeconfig`, or none."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None, programs: Sequence[Path] = ()) -> None:
        self.folder = folder
        path = os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
        self.environment.pop("KUBECONFIG", None)
        if kubeconfig is not None:
            self.environment["KUBECONFIG"] = str(kubeconfig)

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run the commands until one fails. Variables that they export stay for the next ones."""
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{commands}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PASTE_SECONDS,
        )
        self.environment |= dict(re.findall(r"^export (\w+)=([^\s$]+)$", commands, re.MULTILINE))
        return done

    def paste(self, commands: str) -> str:
        """What the commands print. Fails if one of them does."""
        done = self.run(commands)
        assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout + done.stderr
