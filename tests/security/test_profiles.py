"""Models that run in real profiling processes and try to forge their profile."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders import profile

from partita_api.profile import PROFILE_FILE, Profile, ProfileRequest
from partita_api.session.module import ModelSource, TensorSpec
from partita_operator.kube.profiles import read_profile
from partita_profiling.model_output import MOST_OUTPUT_BYTES
from partita_profiling.result import (
    MOST_RESULT_BYTES,
    REQUEST_VARIABLE,
    RESULT_PREFIX,
    ProfileFailure,
    parse_result,
    result_line,
)

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
"""As the restricted Pod Security Standard demands it; also if the tests run as root."""


def request(model: str, kwargs: dict[str, Any] | None = None) -> ProfileRequest:
    source = ModelSource(entrypoint=f"tests.security.hostile_models:{model}", kwargs=kwargs or {})
    return ProfileRequest(
        model=source, input=TensorSpec(shape=(4,)), blocks=2, batch_sizes=(1, 2), pool="t4", curve=(1000, 500)
    )


def log_of(asked: ProfileRequest) -> str:
    """The log of a profiling run."""
    command = [sys.executable, "-m", "partita_profiling", "--seconds", "0.2"]
    run = subprocess.run(
        [*(WITHOUT_RIGHTS if os.geteuid() == 0 else ()), *command],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)]),
            REQUEST_VARIABLE: asked.model_dump_json(by_alias=True),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return run.stdout.decode()


def result_lines(log: str) -> list[str]:
    return [line for line in log.split("\n") if line.startswith("PARTITA-PROFILE")]


@pytest.fixture(scope="module")
def attacked() -> str:
    """The log of a run whose model tries everything."""
    return log_of(request("tries_everything"))


@pytest.mark.parametrize(
    ("attack", "ends"),
    [
        pytest.param("a line", "printed", id="prints a result"),
        pytest.param("a carriage return", "printed", id="prints a result behind a carriage return"),
        pytest.param("a line separator", "printed", id="prints a result behind a line separator"),
        pytest.param("a form feed", "printed", id="prints a result behind a form feed"),
        pytest.param("a long line", "printed", id="prints results at the ends of the runtime's parts"),
        pytest.param("its own output", "written", id="opens its output again"),
        pytest.param("the output above", "Permission denied", id="opens the log of the process above"),
        pytest.param("the errors above", "Permission denied", id="opens the errors of the process above"),
        pytest.param("a descriptor above", "Operation not permitted", id="takes a descriptor of the process above"),
        pytest.param("the memory above", "Permission denied", id="writes to the memory of the process above"),
        pytest.param("a trace of the process above", "Operation not permitted", id="traces the process above"),
    ],
)
def test_a_model_cannot_write_a_result(attacked: str, attack: str, ends: str) -> None:
    assert f"model: tried {attack}: {ends}" in attacked
    assert [line for line in result_lines(attacked) if f"forged by {attack}" in line] == []


def test_the_log_has_one_result_and_it_is_measured(attacked: str) -> None:
    result = parse_result(attacked)

    assert isinstance(result, Profile)
    assert result.environment["device"] == "emulated"
    assert result.differences(request("tries_everything")) == ()
    assert len(result_lines(attacked)) == 1


def test_a_process_that_a_model_leaves_behind_writes_nothing_after_the_result() -> None:
    log = log_of(request("leaves_a_process"))

    assert log.rstrip("\n").split("\n")[-1].startswith(RESULT_PREFIX)
    assert len(result_lines(log)) == 1


def test_a_model_that_floods_its_output_leaves_the_result_within_reach() -> None:
    log = log_of(request("floods"))

    assert isinstance(parse_result(log), Profile)
    assert len(log) < 2 * MOST_OUTPUT_BYTES


def test_a_model_that_dies_leaves_the_reason() -> None:
    result = parse_result(log_of(request("dies")))

    assert isinstance(result, ProfileFailure)
    assert result.reason == "NoResult"
    assert "status -6" in result.message
    assert "model: allocating" in result.message


REPORTED = profile("detector").on("t4").blocks(2).batches(1, 2).memory(1000, 1000).cuts(1000).build()


@pytest.mark.parametrize(
    ("reported", "times", "says"),
    [
        pytest.param(result_line(REPORTED), 1, "not of the request: it is a profile of another model", id="of another"),
        pytest.param("PARTITA-PROFILE " + "9" * 5000, 1, "is not valid", id="a number of 5000 digits"),
        pytest.param("PARTITA-PROFILE " + "[" * 5000, 1, "is not valid", id="deeply nested"),
        pytest.param("PARTITA-PROFILE ", MOST_RESULT_BYTES, "is longer than", id="too long"),
        pytest.param("x", 1, "without a result", id="no result"),
    ],
)
def test_what_a_model_reports_itself_is_checked(reported: str, times: int, says: str) -> None:
    result = parse_result(log_of(request("reports", {"text": reported, "times": times})))

    assert isinstance(result, ProfileFailure)
    assert says in result.message


def changed(path: str, value: str) -> str:
    """A valid profile as JSON, with one value replaced by this text."""
    document: Any = REPORTED.model_dump(mode="json", by_alias=True)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = document
    for part in parents:
        place = place[part]
    place[last] = "@"
    return json.dumps(document).replace('"@"', value)


FIRST_TIME, FIRST_SPREAD = "latency.0.medianMicros.0.0", "latency.0.spread"
DIGITS = "1" + "0" * 400
SHAPE = json.dumps({"shape": [1_048_576] * 8})


def test_the_unchanged_document_is_a_profile() -> None:
    unchanged = str(REPORTED.latency[0].median_micros[0][0])

    assert parse_result(RESULT_PREFIX + changed(FIRST_TIME, unchanged)) == REPORTED


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(FIRST_TIME, "-1", id="a time below zero"),
        pytest.param(FIRST_TIME, "NaN", id="a time that is not a number"),
        pytest.param(FIRST_TIME, "Infinity", id="an infinite time"),
        pytest.param(FIRST_TIME, "1e400", id="a time beyond all floats"),
        pytest.param(FIRST_TIME, DIGITS, id="a time of 400 digits"),
        pytest.param(FIRST_TIME, DIGITS * 20, id="a time of 8000 digits"),
        pytest.param(FIRST_TIME, "86400000001", id="a time of more than a day"),
        pytest.param("latency.0.medianMicros", "[[0, 0], [0, 0]]", id="no time at all"),
        pytest.param("latency.0.medianMicros", "[[0, 1], [0, 1]]", id="no time for one batch size"),
        pytest.param("latency.0.medianMicros", "[[1, 2]]", id="a block without times"),
        pytest.param("latency.0.medianMicros", json.dumps([[1] * 2] * 65), id="65 blocks"),
        pytest.param("latency.0.medianMicros.0", json.dumps([1] * 65), id="65 times of a block"),
        pytest.param(FIRST_SPREAD, "[[NaN, 0], [0, 0]]", id="a spread that is not a number"),
        pytest.param(FIRST_SPREAD, "[[-1, 0], [0, 0]]", id="a spread below zero"),
        pytest.param(FIRST_SPREAD, "[[1e300, 0], [0, 0]]", id="a huge spread"),
        pytest.param(FIRST_SPREAD, "[[0, 0]]", id="a block without spreads"),
        pytest.param("latency.0.divisor", "0", id="divisor 0"),
        pytest.param("latency.0.divisor", "9", id="divisor 9"),
        pytest.param("latency.0.divisor", DIGITS, id="a divisor of 400 digits"),
        pytest.param("latency", "[]", id="no latencies"),
        pytest.param("batchSizes", "[0, 2]", id="a batch of nothing"),
        pytest.param("batchSizes", "[1, 4097]", id="a batch of 4097"),
        pytest.param("batchSizes", f"[1, {DIGITS}]", id="a batch size of 400 digits"),
        pytest.param("batchSizes", json.dumps([*range(1, 66)]), id="65 batch sizes"),
        pytest.param("cuts.0.bytes", "-1", id="bytes below zero"),
        pytest.param("cuts.0.bytes", "4294967297", id="more than 4 GiB at a cut"),
        pytest.param("cuts.0.bytes", DIGITS, id="bytes of 400 digits"),
        pytest.param("cuts.0.bytes", "1.5", id="half a byte"),
        pytest.param("cuts.0.tensors", "0", id="no tensor at a cut"),
        pytest.param("cuts.0.tensors", "65", id="65 tensors at a cut"),
        pytest.param("cuts.0.specs", f"[{SHAPE}]", id="a tensor of 2^160 elements at a cut"),
        pytest.param("cuts", json.dumps([{"bytes": 1}] * 64), id="64 cuts"),
        pytest.param("memory.0.weightsBytes", "-1", id="weights below zero"),
        pytest.param("memory.0.weightsBytes", DIGITS, id="weights of 400 digits"),
        pytest.param("memory.0.activationBytes", "17592186044417", id="activations of more than 16 TiB"),
        pytest.param("outputs", f"[{SHAPE}]", id="an output of 2^160 elements"),
        pytest.param("outputs", json.dumps([{"shape": [1]}] * 65), id="65 outputs"),
        pytest.param("outputNames", '["scores"]', id="a name without an output"),
        pytest.param("outputNames", json.dumps(["n"] * 65), id="65 names"),
        pytest.param("outputs", '[{"shape": [1], "dtype": "BYTES"}]', id="an output of texts"),
        pytest.param("cuts.0.specs", '[{"shape": [1], "dtype": "BYTES"}]', id="texts at a cut"),
        pytest.param("schemaVersion", "2", id="another version"),
        pytest.param("key", json.dumps("k" * 65), id="a long key"),
        pytest.param("partition", json.dumps("p" * 65), id="a long partition"),
        pytest.param("environment", json.dumps({"device": "d" * 8193}), id="a long text"),
        pytest.param("environment", json.dumps({str(n): "" for n in range(17)}), id="17 texts"),
        pytest.param("request.slowdown", "NaN", id="a slowdown that is not a number"),
        pytest.param("request.batchSizes", f"[{DIGITS}]", id="a requested batch size of 400 digits"),
        pytest.param("request.divisors", "[0]", id="a requested divisor 0"),
    ],
)
def test_a_profile_beyond_its_bounds_is_none(path: str, value: str) -> None:
    document = changed(path, value)

    result = parse_result(RESULT_PREFIX + document)

    assert isinstance(result, ProfileFailure)
    assert "is not valid" in result.message
    assert read_profile({"data": {PROFILE_FILE: document}}) is None


@pytest.mark.parametrize(
    "path_and_value",
    [
        pytest.param(("request.blocks", "1"), id="more blocks than requested"),
        pytest.param(("request.batchSizes", "[1, 4]"), id="other batch sizes"),
        pytest.param(("latency.0.divisor", "2"), id="another divisor"),
        pytest.param(("key", '"0123456789abcdef"'), id="another key"),
        pytest.param(("request.pool", '"a100"'), id="another pool"),
    ],
)
def test_a_stored_profile_that_contradicts_its_request_is_measured_again(path_and_value: tuple[str, str]) -> None:
    document = changed(*path_and_value)

    assert isinstance(parse_result(RESULT_PREFIX + document), Profile)  # within the bounds
    assert read_profile({"data": {PROFILE_FILE: document}}) is None
