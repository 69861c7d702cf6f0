"""Whole profiling runs, in this process and as the program that a Job starts."""

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.models.onnx_files import packaged

from partita_api.profile import Profile, ProfileRequest
from partita_api.session.module import DType, ModelSource, NamedInput, TensorSpec
from partita_profiling.job import run
from partita_profiling.memory import LiveTensors
from partita_profiling.result import ERROR_PREFIX, REQUEST_VARIABLE, RESULT_PREFIX, ProfileFailure, parse_result
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.stage_build import StageBuild, emulated_stage
from partita_runtime.models.errors import ModelError, ModelErrorReason

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def request(entrypoint: str = "residuals", kwargs: dict[str, Any] | None = None, **fields: Any) -> ProfileRequest:
    source = ModelSource(entrypoint=f"tests.runtime.models.sample_models:{entrypoint}", kwargs=kwargs or {})
    asked = {"blocks": 4, "batch_sizes": (1, 2, 4), "pool": "cpu", **fields}
    return ProfileRequest(model=source, input=TensorSpec(shape=(3, 16, 16)), **asked)


def as_json(asked: ProfileRequest) -> str:
    return asked.model_dump_json(by_alias=True)


def profiled(asked: ProfileRequest) -> tuple[Profile, list[str]]:
    lines: list[str] = []
    return run(asked, lines.append, now=NOW, seconds=0.5), lines


def test_measured_profile_tells_all_that_planning_needs() -> None:
    asked = request()

    profile, lines = profiled(asked)

    assert (profile.key, profile.blocks, profile.batch_sizes) == (asked.key, 4, (1, 2, 4))
    assert [cut.tensors for cut in profile.cuts] == [2, 2, 2]
    # A feature map of 8 x 8 x 8 and one number a sample, in full precision.
    assert [cut.bytes for cut in profile.cuts] == [(8 * 8 * 8 + 1) * 4] * 3
    assert [spec.shape for spec in profile.outputs] == [(4,), (1,)]
    assert sum(memory.weights_bytes for memory in profile.memory) == 4 * (8 * 27 + 8 + 6 * (8 * 72 + 8) + 4 * 8 + 4)
    assert all(memory.activation_bytes >= 8 * 8 * 8 * 4 for memory in profile.memory)
    assert profile.environment["date"] == "2026-01-02T03:04:05+00:00"
    assert lines[0].startswith("loading tests.runtime.models")


def test_a_model_of_several_inputs_is_profiled_with_all_of_them() -> None:
    ids, mask = (NamedInput(name=name, shape=(8,), dtype=DType.INT64) for name in ("input_ids", "attention_mask"))
    asked = ProfileRequest(
        model=ModelSource(entrypoint="tests.runtime.models.sample_models:encoder"),
        inputs=(mask, ids),
        blocks=3,
        batch_sizes=(1, 2),
        pool="cpu",
    )

    profile, _ = profiled(asked)

    assert (profile.key, profile.blocks, profile.environment["warnings"]) == (asked.key, 3, "")
    assert [spec.shape for spec in profile.outputs] == [(8, 32), (32,)]
    stage = emulated_stage(profile, 0, 1, max_batch=2)
    assert [(spec.shape, spec.dtype) for spec in stage.inputs] == [((8,), "INT64")] * 2


def test_an_onnx_file_is_profiled_block_by_block() -> None:
    file = packaged("PP-OCRv6_rec_small")
    asked = ProfileRequest(
        model=ModelSource(file=str(file)),
        input=TensorSpec(shape=(3, 48, 96)),
        blocks=4,
        batch_sizes=(1, 2),
        pool="cpu",
    )

    profile, lines = profiled(asked)

    assert (profile.blocks, profile.environment["warnings"]) == (4, "")
    assert profile.content == hashlib.sha256(file.read_bytes()).hexdigest()
    assert lines[0] == f"loading {file}"
    assert sum(memory.weights_bytes for memory in profile.memory) == pytest.approx(file.stat().st_size, rel=0.05)
    assert all(memory.activation_bytes >= 3 * 48 * 96 * 4 for memory in profile.memory)
    assert [spec.shape for spec in profile.outputs] == [(12, 18710)]
    stage = StageBuild(
        model=asked.model,
        input=asked.input,
        blocks=4,
        first=2,
        partition=profile.partition,
        content=profile.content,
    )
    assert [spec.shape for spec in build_executor(stage).inputs] == [spec.shape for spec in profile.cuts[1].specs]


def test_every_class_arrives_at_the_same_cut() -> None:
    classes = [request(pool="a"), request(pool="b", slowdown=1.5), request(pool="c", curve=(100, 50))]

    profiles = [profiled(asked)[0] for asked in classes]

    assert len({profile.partition for profile in profiles}) == 1
    assert len({profile.cuts for profile in profiles}) == 1
    assert len({profile.key for profile in profiles}) == 3


def test_emulated_profile_takes_its_curve_and_can_be_served() -> None:
    profile, _ = profiled(request(curve=(1000, 500), divisors=(1, 2)))

    for divisor, alpha in ((1, 1000), (2, 2000)):
        latency = profile.divisor(divisor)
        assert latency is not None
        for i, batch in enumerate(profile.batch_sizes):
            assert sum(row[i] for row in latency.median_micros) == pytest.approx(alpha * batch + 500, abs=0.01)
    stage = emulated_stage(profile, 0, 2, max_batch=2)
    assert [spec.dtype for spec in stage.outputs] == [DType.FP16] * 2
    assert {spec.shape for spec in stage.outputs} == {(8, 8, 8), (1,)}


def test_profile_and_replica_agree_on_the_cut() -> None:
    asked = request()
    profile, _ = profiled(asked)

    built = build_executor(
        StageBuild(model=asked.model, input=asked.input, blocks=4, first=1, end=3, partition=profile.partition)
    )

    assert [spec.shape for spec in built.inputs] == [spec.shape for spec in profile.cuts[0].specs]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param(request("branching"), "served as one block", id="cannot be captured"),
        pytest.param(request(blocks=20), "blocks only, not 20", id="few cuts"),
        pytest.param(request("answers", {"kind": "large"}), "half precision limits them", id="large numbers"),
        pytest.param(
            request(divisors=(1, 2)),
            "only whole accelerators were timed",
            id="no vGPUs",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_what_falls_short_is_said_in_the_log_and_in_the_profile(asked: ProfileRequest, says: str) -> None:
    profile, lines = profiled(asked)

    assert says in profile.environment["warnings"]
    assert any(line.startswith("warning: ") and says in line for line in lines)
    assert [latency.divisor for latency in profile.latency] == [1]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        pytest.param("nan", "NaN or infinity on the standard input", id="not a number"),
        pytest.param("noise", "make it deterministic", id="not deterministic"),
    ],
)
def test_model_whose_answers_cannot_be_trusted_fails(kind: str, says: str) -> None:
    with pytest.raises(ModelError, match=says) as raised:
        profiled(request("answers", {"kind": kind}, blocks=1))

    assert raised.value.reason is ModelErrorReason.BAD_OUTPUT


def test_peak_of_live_tensors_forgets_what_was_released() -> None:
    with torch.no_grad(), LiveTensors() as live:
        for _ in range(5):
            one = torch.zeros(256)
            two = one.view(16, 16).t()
            del one, two

    assert live.peak_bytes == 1024


def program(*arguments: str, variable: str | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """A run of the program of a Job."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-m", "partita_profiling", "--seconds", "0.5", *arguments],
        env={**environment, REQUEST_VARIABLE: variable} if variable is not None else environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def test_program_ends_its_log_with_the_profile() -> None:
    asked = request(blocks=2, batch_sizes=(1,))

    ended = program(variable=as_json(asked))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("model: loading tests.runtime.models")
    assert ended.stdout.splitlines()[-1].startswith(RESULT_PREFIX)
    profile = parse_result(ended.stdout)
    assert isinstance(profile, Profile)
    assert (profile.key, profile.request) == (asked.key, asked)


@pytest.mark.parametrize("channel", ["file", "standard input"])
def test_request_may_come_by_other_ways(channel: str, tmp_path: Path) -> None:
    asked = request(blocks=2, batch_sizes=(1,), curve=(10, 10))
    document = as_json(asked)
    path = tmp_path / "request.json"
    path.write_text(document)

    ended = program("--request", str(path) if channel == "file" else "-", given=document)

    profile = parse_result(ended.stdout)
    assert ended.returncode == 0
    assert isinstance(profile, Profile)
    assert profile.request == asked


@pytest.mark.parametrize(
    ("document", "status", "reason", "says"),
    [
        pytest.param(as_json(request("raises")), 1, "ImportFailed", "no weights here", id="bad model"),
        pytest.param(as_json(request("answers", {"kind": "nan"})), 1, "BadOutput", "NaN", id="bad answers"),
        pytest.param(as_json(request(backend="Abacus")), 1, "Unexpected", "Abacus", id="unforeseen"),
        pytest.param("{}", 2, "BadRequest", "Field required", id="bad request"),
        pytest.param(None, 2, "BadRequest", f"set {REQUEST_VARIABLE}", id="no request"),
    ],
)
def test_run_that_fails_ends_its_log_with_the_reason(document: str | None, status: int, reason: str, says: str) -> None:
    ended = program(variable=document)

    failure = parse_result(ended.stdout)
    assert ended.stdout.splitlines()[-1].startswith(ERROR_PREFIX)
    assert isinstance(failure, ProfileFailure)
    assert (ended.returncode, failure.reason) == (status, reason)
    assert says in failure.message
