"""The demonstration as a whole, with a smaller example than `make demo`: API server, Ray, models, load, report."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.shell import Shell
from tests.fixtures import RayClusters
from tests.patience import PATIENCE_SECONDS

from partita_devtools.environment import DEFAULT_STATE_DIR
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_operator.cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traffic"
DEMO = "partita demo --example traffic --api-server embedded --seconds 8"

pytestmark = [pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, started_clusters: RayClusters) -> Iterator[Shell]:
    """What one test starts, the next one uses."""
    started_clusters.stop()
    reader = Shell(tmp_path_factory.mktemp("reader"))
    shutil.copytree(EXAMPLE, reader.folder / EXAMPLE.name, ignore=shutil.ignore_patterns("__pycache__"))
    yield reader
    reader.paste("partita dev down --delete-data")


def test_an_example_is_served_and_reported(reader: Shell) -> None:
    """Whether the SLO is kept depends on what else this machine does; that it is answered does not."""
    run = reader.run(f"{DEMO} --output json")

    assert run.returncode in (ExitCode.OK, ExitCode.MISSED), run.stdout + run.stderr
    facts = json.loads(run.stdout)
    assert facts["slo_met"] is (run.returncode == ExitCode.OK)
    assert facts["verification"]["differences"] == []
    assert [phase["name"] for phase in facts["phases"]] == ["planned load", "double load", "planned load again"]
    assert facts["phases"][0]["requests"] > 0
    assert facts["first_answer_after_s"] > 0
    assert "cores are free, and the models need" in run.stderr, "it says what rate it chose"
    assert "the first request is answered" in run.stderr
    page = (reader.folder / facts["report"]).read_text()
    for heading in ("Goodput against load", "Timeline of batches", "Latency of answered requests"):
        assert heading in page


def test_ray_ends_under_load(reader: Shell) -> None:
    """The demonstration ends with it. Ray's other nodes are found without a record of them.

    No machine can keep the SLO of the example here.
    """
    manifest = reader.folder / EXAMPLE.name / "manifests" / "session.yaml"
    manifest.write_text(manifest.read_text().replace("latencyMs: 2000", "latencyMs: 80"))
    ray = RayCluster((reader.folder / DEFAULT_STATE_DIR).resolve())
    demo = subprocess.Popen(
        ["bash", "-c", f"exec {DEMO}"], cwd=reader.folder, env=reader.environment, stderr=subprocess.PIPE, text=True
    )
    with demo:
        assert demo.stderr is not None
        lines = []
        for line in demo.stderr:
            lines.append(line)
            if line.startswith("planned load:"):
                ray.kill_node("head")
                break
        _, end = demo.communicate(timeout=PATIENCE_SECONDS)

    assert demo.returncode == ExitCode.FAILED, "".join(lines) + end
    assert re.search(r"too slow for the SLO: the session declares \d+00 ms instead of 80\n", "".join(lines))
    assert f"Error: Ray node head ended; the end of its log {ray.state_dir}/logs/ray-head.log:\n" in end
    assert end.endswith(f"\nTo start again: {DEMO}\n")

    temp_dir = Path(json.loads((ray.state_dir / "ray-cluster.json").read_text())["temp_dir"])
    (ray.state_dir / "ray-cluster.json").unlink()
    assert temp_dir.exists()
    assert ray.running_processes()
    reader.paste("partita dev down")
    assert not ray.running_processes()
    assert not temp_dir.exists()
