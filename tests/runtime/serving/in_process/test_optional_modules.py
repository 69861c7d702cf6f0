"""Optional modules: a request is answered without them if they fail or would be late."""

from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application, detector_with_crops

from partita_runtime.serving.protocol.inference_client import decode_answer

TWO = np.zeros((2, 3, 4), np.float32)
TWO[:, 0, 0] = [2, 1]
"""Samples with two crops and one crop."""


async def asked(running: Stand, samples: np.ndarray) -> dict[str, Any]:
    content, headers = infer_body(samples)
    answer = await running.client.post(f"/v2/models/{running.app.name}/infer", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return {name: found.tolist() for name, found in decode_answer(answer.headers, answer.content).items()}


async def test_an_answer_says_that_nothing_is_missing() -> None:
    async with stand(detector_with_crops().optional("classifier")) as running:
        found = await asked(running, TWO)
        metadata = (await running.client.get("/v2/models/traffic")).json()["outputs"]
    assert (found["classifier.index"], found["classifier.answered"]) == ([0, 0, 1], [True, True])
    assert {"name": "classifier.answered", "datatype": "BOOL", "shape": [-1]} in metadata


@pytest.mark.parametrize(
    ("app", "want"),
    [
        pytest.param(
            detector_with_crops().function("extra", "broken").edge("detector", "extra").optional("extra"),
            {"extra.answered": [False, False], "classifier.index": [0, 0, 1]},
            id="a function raises",
        ),
        pytest.param(
            detector_with_crops().optional("crop"),
            {"crop.answered": [True, True], "classifier.index": [0, 0, 1]},
            id="a function in the middle answers",
        ),
        pytest.param(
            application("traffic")
            .model("quick", input=(3, 4))
            .model("slow", input=(2,), beta_micros=9_000_000)
            .function("double", "double")
            .edge("quick", "slow")
            .edge("quick", "double")
            .slo(3_000)
            .optional("slow"),
            {"slow.answered": [False, False], "slow.index": [], "double.seen": [[1], [1]]},
            id="a model would be late",
        ),
    ],
)
async def test_the_answer_is_without_a_module_that_fails(app: Application, want: dict[str, Any]) -> None:
    async with stand(app) as running:
        found = await asked(running, TWO)
        metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    assert {name: found[name] for name in want} == want
    for name in (name.removesuffix(".answered") for name in want if want[name] == [False, False]):
        assert f'partita_optional_left_out_total{{module="{name}",session="default/traffic"}} 2.0' in metrics


async def test_a_module_that_is_not_optional_still_fails_the_request() -> None:
    app = detector_with_crops().function("extra", "broken").edge("detector", "extra").optional("classifier")
    async with stand(app) as running:
        content, headers = infer_body(TWO)
        answer = await running.client.post("/v2/models/traffic/infer", content=content, headers=headers)
    assert (answer.status_code, "no such camera" in answer.text) == (500, True)
