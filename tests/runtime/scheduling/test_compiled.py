"""The compiled core, built in a separate folder, makes the recorded decisions."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(
    shutil.which("cc") is None or find_spec("mypyc") is None, reason="needs a C compiler and mypy[mypyc]"
)
@pytest.mark.timeout(1200)
def test_compiled_core_decides_like_the_interpreted_one(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "runtime/partita_runtime", tmp_path / "partita_runtime", ignore=shutil.ignore_patterns("*.so")
    )
    compile_it = [ROOT / "runtime/compile_core.py", "--into", tmp_path, "--optimization", "0"]
    compiled = subprocess.run([sys.executable, *compile_it], capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stdout[-2000:] + compiled.stderr[-2000:]

    paths = [tmp_path, *(path for path in sys.path if path)]
    replay = subprocess.run(
        [sys.executable, "-m", "tests.runtime.scheduling.golden"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert replay.returncode == 0, replay.stdout + replay.stderr
    told = json.loads(replay.stdout)
    assert told["different"] == []
    assert told["core"].startswith(str(tmp_path))
    assert not told["core"].endswith(".py")
