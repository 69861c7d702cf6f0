"""The page on local mode, as a reader pastes it: its files, then its commands, with the processes that they start."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.fixtures import RayClusters

PAGE = Path(__file__).resolve().parents[3] / "docs" / "get-started" / "local.md"
FILE = re.compile(r"save this as\s+`([^`]+)`:\n\n```\w+\n(.*?)```", re.S | re.I)
COMMANDS = re.compile(r"^```sh\n(.*?)```", re.S | re.M)

pytestmark = [pytest.mark.ray, pytest.mark.e2e]


class Reader:
    """Pastes blocks of commands into one shell session's folder and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        scripts = str(Path(sys.executable).parent)
        self.environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
        self.environment.pop("KUBECONFIG", None)

    def paste(self, block: str) -> str:
        """What the commands print. Variables that they export stay for the next block."""
        script = f"set -euo pipefail\n{block}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        self.environment |= dict(re.findall(r"^export (\w+)=(\S+)$", block, re.M))
        return done.stdout + done.stderr


@pytest.fixture
def reader(tmp_path: Path, started_clusters: RayClusters) -> Iterator[Reader]:
    started_clusters.stop()
    reader = Reader(tmp_path)
    yield reader
    reader.paste("partita local down --delete-data")


@pytest.mark.timeout(1500)
def test_the_page_works_as_pasted(reader: Reader) -> None:
    text = PAGE.read_text()
    for name, content in FILE.findall(text):
        path = reader.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        (path.parent / "__init__.py").touch()
    start, look, other, change, stop = COMMANDS.findall(text)

    assert "isess/shop serves at http://127.0.0.1:" in reader.paste(start)
    looked = reader.paste(look)
    assert "Ready" in looked
    assert "operator: " in looked
    assert "shop" in reader.paste(other)
    stored = yaml.safe_load((reader.folder / ".partita/local/objects/inferencesessions/default/shop.yaml").read_text())
    assert stored["status"]["url"].endswith("/default/shop")

    again = reader.paste("partita local up -f manifests/")
    assert "isess/shop serves at" in again
    assert "starting Ray node" not in again

    assert "isess/shop deleted" in reader.paste(change)
    reader.paste(stop)
    assert (
        "not running"
        in subprocess.run(
            ["partita", "local", "status"],
            cwd=reader.folder,
            env=reader.environment,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    )
