"""A check as a whole: samples are sent, answers compared, and a session that is busy is asked again."""

import json
from collections.abc import Awaitable, Callable

import pytest

from partita_api.quality import QualityMetric
from partita_runtime.quality import asking
from partita_runtime.quality.asking import ATTEMPTS, NotAskedError, ask_samples
from partita_runtime.quality.check import Measure, QualityScore
from partita_runtime.quality.samples import Sample, parse_samples

TOP1 = Measure(QualityMetric.TOP1, 0.75)
Session = Callable[[bytes], Awaitable[tuple[int, bytes]]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN_SECONDS", 0.0)


def samples(*labels: int) -> tuple[Sample, ...]:
    """Samples whose input is the row that a session answers with."""
    return parse_samples(
        "\n".join(
            json.dumps(
                {
                    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0, 1]}],
                    "outputs": [{"name": "y", "datatype": "INT64", "shape": [1], "data": [label]}],
                }
            )
            for label in labels
        )
    )


async def echo(body: bytes) -> tuple[int, bytes]:
    """A session that answers with its input, as output y."""
    (sent,) = json.loads(body)["inputs"]
    return 200, json.dumps({"outputs": [{**sent, "name": "y"}]}).encode()


async def score(session: Session, *labels: int, measure: Measure = TOP1) -> QualityScore:
    return await ask_samples(samples(*labels), measure, session)


async def test_the_score_is_that_of_all_samples_and_the_worst_are_found() -> None:
    found = await score(echo, 1, 1, 1, 0)

    assert (found.value, found.met) == (0.75, True)
    assert [number for number, _ in found.worst(1)] == [4]


async def test_a_score_below_the_limit_is_not_met() -> None:
    assert not (await score(echo, 1, 0)).met


async def test_a_session_that_is_busy_is_asked_again() -> None:
    refusals = iter([503] * (ATTEMPTS - 1))

    async def busy(body: bytes) -> tuple[int, bytes]:
        return (503, b"") if next(refusals, None) else await echo(body)

    assert (await score(busy, 1)).met


async def test_a_session_that_stays_busy_has_no_score() -> None:
    async def busy(_: bytes) -> tuple[int, bytes]:
        return 503, b""

    with pytest.raises(NotAskedError, match=f"503 to a sample {ATTEMPTS} times"):
        await score(busy, 1, 1)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        pytest.param(400, b"{}", "answers 400", id="the session refuses the sample"),
        pytest.param(200, b"[" * 100_000, "not of the Open Inference Protocol", id="no answer of the protocol"),
        pytest.param(200, b'{"outputs": []}', "has no output y", id="the output is missing"),
    ],
)
async def test_a_sample_without_a_usable_answer_fails_the_check(status: int, body: bytes, why: str) -> None:
    async def broken(_: bytes) -> tuple[int, bytes]:
        return status, body

    found = await score(broken, 1, 1, 1, 1, 1)

    assert (found.value, found.met) == (None, False)
    assert found.problems.count(why) == 3
    assert found.problems.endswith("and 2 more")


async def test_an_output_that_no_sample_expects_is_reported() -> None:
    found = await score(echo, 1, measure=Measure(QualityMetric.TOP1, 0.5, output="z"))

    assert "expects no output z" in found.problems
