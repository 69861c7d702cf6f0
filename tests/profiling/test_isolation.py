"""The process above a model's process imports nothing that the model may have written."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from partita_profiling.isolation import isolate
isolate()
import colorsys
"""


def test_an_isolated_process_imports_nothing_from_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("print('imported')")

    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.stdout == ""
    assert "No module named 'colorsys'" in run.stderr
