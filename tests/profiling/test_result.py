"""The result line of a profiling run, and what the operator makes of its log."""

import pytest
from tests.builders import profile

from partita_profiling.result import (
    ERROR_PREFIX,
    MOST_RESULT_BYTES,
    RESULT_PREFIX,
    ProfileFailure,
    parse_result,
    result_line,
)

PROFILE = profile("detector").on("fast").blocks(3).build()
FAILURE = ProfileFailure(reason="ImportFailed", message="cannot import x; put the package into the image")


@pytest.mark.parametrize("result", [PROFILE, FAILURE], ids=["profile", "failure"])
@pytest.mark.parametrize(
    "log",
    [
        pytest.param("{line}", id="alone"),
        pytest.param("loading\nbatch size 1: 3 ms\n{line}\n", id="after progress"),
        pytest.param("{line}\nException ignored in: <function>\n", id="before noise"),
    ],
)
def test_result_line_is_found_in_the_log(log: str, result: object) -> None:
    assert isinstance(result, (type(PROFILE), ProfileFailure))
    line = result_line(result)

    assert "\n" not in line
    assert parse_result(log.replace("{line}", line)) == result


def test_last_result_counts() -> None:
    assert parse_result(f"{result_line(FAILURE)}\n{result_line(PROFILE)}\n") == PROFILE


@pytest.mark.parametrize(
    ("log", "says"),
    [
        pytest.param("", "without a log", id="empty"),
        pytest.param("a\nb\nc\nd\ne\nf\nKilled\n", "ends: c\nd\ne\nf\nKilled", id="killed"),
        pytest.param(f"{RESULT_PREFIX}{{}}", "is not valid", id="no profile"),
        pytest.param(f'{ERROR_PREFIX}{{"reason": ', "is not valid", id="cut off"),
        pytest.param(f"model: {result_line(PROFILE)}", "without a result", id="printed by the model"),
        pytest.param(f"model: x\u2028{result_line(PROFILE)}", "without a result", id="behind a line separator"),
        pytest.param(f"model: x\r{result_line(PROFILE)}", "without a result", id="behind a carriage return"),
        pytest.param(result_line(PROFILE) + " " * MOST_RESULT_BYTES, "longer than", id="too long"),
    ],
)
def test_log_without_a_readable_result_is_a_failure(log: str, says: str) -> None:
    failure = parse_result(log)

    assert isinstance(failure, ProfileFailure)
    assert failure.reason == "NoResult"
    assert says in failure.message
