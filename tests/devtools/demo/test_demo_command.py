"""The demonstration as a whole, as `make demo` runs it: an API server, Ray, real models, load, and the report."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.shell import Shell
from tests.fixtures import RayClusters

from partita_operator.cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traffic"

pytestmark = [pytest.mark.ray, pytest.mark.e2e]


@pytest.fixture
def reader(tmp_path: Path, started_clusters: RayClusters) -> Iterator[Shell]:
    started_clusters.stop()
    reader = Shell(tmp_path)
    yield reader
    reader.paste("partita dev down --delete-data")


@pytest.mark.timeout(1500)
def test_an_example_is_served_and_reported(reader: Shell) -> None:
    """Whether the SLO is kept depends on what else this machine does; that it is answered does not."""
    run = reader.run(f"partita demo --example {EXAMPLE} --api-server embedded --seconds 8 --output json")

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
