"""Pages on commands that read files: the commands, pasted beside files like those that the pages describe."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.builders import pool, profile, session
from tests.docs.pages import blocks, pasted
from tests.docs.shell import Shell

from partita_api.profile import ProfileRequest
from partita_api.session.module import ModelSource, TensorSpec
from partita_operator.cli.exit_codes import ExitCode

MIG, PLAN, SIMULATION = "docs/tasks/mig.md", "docs/reference/cli-plan.md", "docs/tasks/simulation.md"
SUBCLUSTERS, PROFILING = "docs/tasks/subclusters.md", "docs/concepts/profiling.md"
CLI, DOCTOR = "docs/reference/cli.md", "docs/tasks/doctor.md"
WHAT_IF, SCALE_TO_ZERO = "docs/tasks/what-if.md", "docs/tasks/scale-to-zero.md"
NEEDS_JQ = pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on PATH: apt-get install jq")


def document(resource: Any) -> dict[str, Any]:
    made: dict[str, Any] = resource.model_dump(mode="json", by_alias=True, exclude={"status"}, exclude_none=True)
    return made


@pytest.fixture
def reader(tmp_path: Path) -> Shell:
    """A shell beside the manifests and the profile of a session."""
    fast, traffic = pool("fast").gpus(8).build(), session("traffic").slo(200).rate(100).model("detector").build()
    measured = profile("detector").on("fast").linear(1000, 5000).build()
    for folder in ("manifests", "profiles"):
        (tmp_path / folder).mkdir()
    text = yaml.safe_dump_all([document(fast), document(traffic)])
    (tmp_path / "manifests" / "all.yaml").write_text(text)
    (tmp_path / "pools.yaml").write_text(yaml.safe_dump(document(fast)))
    (tmp_path / "session.yaml").write_text(yaml.safe_dump(document(traffic)))
    (tmp_path / "profiles" / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return Shell(tmp_path)


def test_mig_layouts(reader: Shell) -> None:
    (block,) = pasted(MIG)
    reader.paste(block.replace("DIR", "layouts"))

    pools = list(yaml.safe_load_all((reader.folder / "layouts/pools.yaml").read_text()))
    assert {each["kind"] for each in pools} == {"GPUPool"}


def test_plans_of_files(reader: Shell) -> None:
    draw, compare, together, diff = pasted(PLAN)

    reader.paste(draw)
    assert {path.name for path in (reader.folder / "figures").iterdir()} >= {"traffic-pipelines.png"}
    assert "no-partitioning" in reader.paste(compare)
    reader.paste(together)
    _get, replan = diff.splitlines()
    reader.paste("partita plan manifests --profiles profiles --out plan.yaml")
    assert "traffic" in reader.paste(replan)


def test_a_simulation_of_files(reader: Shell) -> None:
    (block,) = pasted(SIMULATION)

    assert "detector" in reader.paste(block)


def test_models_of_subclusters(reader: Shell) -> None:
    file = next(block.text for block in blocks(SUBCLUSTERS) if block.language == "yaml")
    (reader.folder / "models.yaml").write_text(file)

    assert "resnet50" in reader.paste("partita subclusters models.yaml --clusters 20 --memory 80Gi -o json")


def test_a_profile_by_hand(reader: Shell) -> None:
    (block,) = pasted(PROFILING)
    request = ProfileRequest(
        model=ModelSource(entrypoint="traffic.models:vehicle_classifier"),
        input=TensorSpec(shape=(3, 64, 64)),
        blocks=2,
        batch_sizes=(1,),
        pool="fast",
        curve=(1000, 4000),
    )
    (reader.folder / "request.json").write_text(request.model_dump_json(by_alias=True, exclude_none=True))
    reader.environment["PYTHONPATH"] = str(ROOT / "examples")

    assert reader.paste(block).splitlines()[-1].startswith("PARTITA-PROFILE {")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, reader: Shell) -> None:
    _json, completion = pasted(CLI)
    (line,) = re.findall(rf"partita completion {shell} > .+", completion)
    target = reader.folder / "completion"

    reader.paste(re.sub(r" > .+", f" > {target}", line))
    assert "partita" in target.read_text()
    if shell == "bash":
        reader.paste(completion.splitlines()[0])


@NEEDS_JQ
def test_findings_in_a_script(reader: Shell) -> None:
    (block,) = pasted(DOCTOR)

    assert reader.run(block).stderr == ""


def test_what_if_questions_about_an_example(reader: Shell) -> None:
    """The example's pools are emulated, so every machine has the results of the pages."""
    shutil.rmtree(reader.folder / "profiles")
    profiles, _save, other, reserve, compare, explain, simulate, _in_cluster = pasted(WHAT_IF)
    *_, scaled_to_zero = pasted(SCALE_TO_ZERO)
    shown, missing, *_ = (block.text for block in blocks(WHAT_IF) if block.language == "text")

    plan = reader.paste(profiles)
    assert "cost 5.23 an hour" in plan
    assert "cost 5.23 an hour" in shown
    patient = _with_time_limit(reader.folder / "patient", 600)  # the figures are the same on a busy machine
    refused = reader.run(f"partita plan {patient} --profiles profiles --rate 300")
    assert refused.returncode == ExitCode.NO_PLAN
    assert set(missing.split()) <= set((refused.stdout + refused.stderr).split())
    reader.paste(other)
    assert "Surviving losses costs" in reader.paste(reserve)
    assert "no-partitioning" in reader.paste(compare)
    reader.paste(explain)
    assert (reader.folder / "figures").is_dir()
    assert "97.48" in reader.paste(simulate)
    assert "held" in reader.paste(scaled_to_zero)


def _with_time_limit(folder: Path, seconds: int) -> Path:
    """A copy of the example's manifests whose searches may take longer."""
    shutil.copytree(ROOT / "examples/traffic-emulated/manifests", folder)
    manifest = yaml.safe_load((folder / "session.yaml").read_text())
    manifest["spec"]["planner"]["timeLimitSeconds"] = seconds
    (folder / "session.yaml").write_text(yaml.safe_dump(manifest))
    return folder
