"""Edges with `when`: a module runs for the answers for which the expression is true, and answers say where it did."""

from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application

from partita_api.session.module import Join
from partita_runtime.autoscaling.traffic import EdgeCounts
from partita_runtime.serving.protocol.inference_client import decode_answer

SCORES = np.array([[1, 0, 0, 0], [0, 1, 2, 3], [1, 3, 0, 0.5]], np.float32)
"""Three samples; the answers of the classifier are the same numbers."""


def classifier() -> Application:
    """A real model that answers with its input."""
    fields = {"input": (4,), "outputs": ((4,),), "output_names": ("score",)}
    return application("traffic").model("classifier", **fields, entrypoint="tests.runtime.serving.models:identity")


def with_expert(when: str) -> Application:
    return classifier().model("expert", input=(4,)).edge("classifier", "expert", when=when)


async def asked(running: Stand, samples: np.ndarray = SCORES) -> dict[str, Any]:
    content, headers = infer_body(samples)
    answer = await running.client.post(f"/v2/models/{running.app.name}/infer", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return {name: found.tolist() for name, found in decode_answer(answer.headers, answer.content).items()}


async def answers_at_edges(running: Stand) -> dict[tuple[str, str, str], float]:
    """What the metrics say about edges, by both modules and the decision."""
    text = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    found = {}
    for line in text.splitlines():
        if line.startswith("partita_edge_answers_total{"):
            labels, _, value = line.partition("{")[2].partition("} ")
            pairs = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
            found[pairs["from"], pairs["to"], pairs["decision"]] = float(value)
    return found


@pytest.mark.parametrize(
    ("when", "samples"),
    [
        pytest.param("outputs.score[0] > 0.5", [0, 2], id="a number"),
        pytest.param("outputs[0][1] == 1", [1], id="an output by its number"),
        pytest.param("true", [0, 1, 2], id="always"),
        pytest.param("3 in outputs.score && size(outputs.score) == 4", [1, 2], id="any element"),
        pytest.param("outputs.score[0] > 1", [], id="never"),
    ],
)
async def test_a_module_runs_for_the_answers_for_which_the_expression_is_true(when: str, samples: list[int]) -> None:
    async with stand(with_expert(when)) as running:
        found = await asked(running)
        counted = await answers_at_edges(running)
        metadata = (await running.client.get("/v2/models/traffic")).json()["outputs"]
    assert found["expert.index"] == samples
    assert found["expert.answered"] == [sample in samples for sample in range(3)]
    taken, not_taken = len(samples), 3 - len(samples)
    want = {("classifier", "expert", "taken"): taken, ("classifier", "expert", "not_taken"): not_taken}
    assert counted == {key: count for key, count in want.items() if count}
    assert {"name": "expert.answered", "datatype": "BOOL", "shape": [-1]} in metadata


FIRST = "outputs.score[0] > 0.5"
SECOND = "outputs.score[1] > 2.5"


@pytest.mark.parametrize(
    ("app", "want"),
    [
        pytest.param(
            with_expert(FIRST).function("join", "join").edge("classifier", "join").edge("expert", "join"),
            {
                "join.classifier": [[1], [1], [1]],
                "join.expert": [[1], [0], [1]],
                "expert.answered": [True, False, True],
            },
            id="a join does not wait for a module that does not run",
        ),
        pytest.param(
            with_expert(FIRST).function("join", "join").edge("classifier", "join", when=SECOND).edge("expert", "join"),
            {
                "join.classifier": [[0], [0], [1]],
                "join.expert": [[1], [0], [1]],
                "join.answered": [True, True, True],
            },
            id="a join gets the answers for which the expression is true",
        ),
        pytest.param(
            classifier().function("double", "double").edge("classifier", "double", when=SECOND),
            {"double.index": [2], "double.answered": [False, False, True]},
            id="a function",
        ),
        pytest.param(
            with_expert(FIRST).model("next", input=(2,)).edge("expert", "next"),
            {"next.index": [0, 2], "expert.answered": [True, False, True]},
            id="what follows a module that does not run",
        ),
        pytest.param(
            with_expert(FIRST)
            .model("other", input=(4,))
            .edge("classifier", "other", when=f"!({FIRST})")
            .model("last", input=(2,))
            .edge("expert", "last")
            .edge("other", "last")
            .any_of("last"),
            {"last.index": [0, 1, 2], "expert.answered": [True, False, True], "other.answered": [False, True, False]},
            id="a model after one of two",
        ),
        pytest.param(
            classifier()
            .model("quick", input=(4,))
            .model("slow", input=(4,), beta_micros=9_000_000)
            .edge("classifier", "quick")
            .edge("classifier", "slow")
            .function("double", "double")
            .edge("quick", "double")
            .edge("slow", "double")
            .any_of("double", join=Join.FIRST),
            {"double.index": [0, 1, 2], "double.seen": [[1], [1], [1]]},
            id="the first answer, without the slow one",
        ),
        pytest.param(
            with_expert(FIRST)
            .function("double", "double")
            .edge("expert", "double")
            .edge("classifier", "double", when=SECOND)
            .any_of("double"),
            {"double.index": [0, 2, 2], "double.seen": [[1], [1], [1]], "double.answered": [True, False, True]},
            id="a function for each answer",
        ),
        pytest.param(
            with_expert(FIRST).model("other", input=(4,)).edge("classifier", "other", when=f"!({FIRST})"),
            {"expert.index": [0, 2], "other.index": [1], "other.answered": [False, True, False]},
            id="one of two",
        ),
    ],
)
async def test_what_follows_a_condition(app: Application, want: dict[str, Any]) -> None:
    async with stand(app) as running:
        found = await asked(running)
    assert {name: found[name] for name in want} == want


async def test_the_outputs_of_size_classes_have_their_names() -> None:
    app = application("traffic").model("read", input=(2, 8), sizes=(4, 8), outputs=((1, -1),), output_names=("text",))
    app = app.model("next", input=(1, 4)).edge("read", "next", when="size(outputs.text[0]) > 8")
    async with stand(app) as running:
        found = await asked(running, np.zeros((1, 2, 3), np.float32))
    assert found["next.answered"] == [False]


async def test_a_request_fails_if_the_expression_has_no_value_and_others_go_on() -> None:
    async with stand(with_expert("outputs.score[int(outputs.score[2])] > 0.5")) as running:
        content, headers = infer_body(SCORES + np.float32(4))
        answer = await running.client.post("/v2/models/traffic/infer", content=content, headers=headers)
        found = await asked(running, SCORES[:1])
        counted = await answers_at_edges(running)
    assert answer.status_code == 500
    assert "when of the edge from 'classifier' to 'expert' has no value for this answer: index 4" in answer.text
    assert found["expert.answered"] == [True]
    assert counted["classifier", "expert", "failed"] >= 1
    assert counted["classifier", "expert", "taken"] == 1


async def test_a_request_goes_on_without_an_optional_module_whose_answer_has_no_value() -> None:
    app = with_expert("outputs.score[9] > 0.5").function("join", "join").edge("expert", "join")
    app = app.edge("classifier", "join").optional("classifier")
    async with stand(app) as running:
        found = await asked(running)
    assert found["classifier.answered"] == [False] * 3
    assert found["join.expert"] == [[0]] * 3


async def test_the_share_and_the_fan_out_of_edges_that_vary_are_counted() -> None:
    app = application("traffic").model("detector", outputs=((2,),)).function("crop", "crop")
    app = app.model("classifier", outputs=((3,),)).edge("detector", "crop").edge("crop", "classifier", most=3)
    app = app.model("expert", input=(3,)).edge("classifier", "expert", when="outputs[0][0] > 2")
    async with stand(app) as running:
        await asked(running, np.array([[[0, 0]] * 2, [[2, 0]] * 2, [[9, 0]] * 2], np.float32))
        counts = running.session.signals().traffic
        text = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    assert counts.of_edge("crop", "classifier") == EdgeCounts(answers=3, taken=3, sub_requests=5), "cut off at three"
    assert counts.of_edge("classifier", "expert").answers == 5
    assert counts.of_edge("detector", "crop") == EdgeCounts(0, 0, 0), "a function runs once for each answer"
    assert 'partita_edge_sub_requests_total{from="crop",session="default/traffic",to="classifier"} 5.0' in text
