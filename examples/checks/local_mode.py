"""Serves an example in local mode."""

import subprocess
import sys
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).resolve().parents[1]
NOT_COMPARED: Final = 2
"""Exit code of checks that could compare nothing."""
READY_S: Final = 1800


def serve(example: str, session: str) -> str:
    """The URL of an example's session in local mode, which this starts if it does not run.

    Ends this program if that fails.
    """
    _partita(
        "up", "-f", str(EXAMPLES / example / "manifests"), "--python-path", str(EXAMPLES), "--timeout", str(READY_S)
    )
    return _partita("url", f"isess/{session}").strip()


def _partita(*arguments: str) -> str:
    """The output of a command of local mode, whose messages are shown. Ends this program if it fails."""
    command = [sys.executable, "-m", "partita_operator", "local", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(NOT_COMPARED)
    return done.stdout
