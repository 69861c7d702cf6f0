"""The quality check in a running operator: samples of a ConfigMap, sent to the plan, decide what serves."""

import json
from typing import Any

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, eventually, pool, reason, session

pytestmark = pytest.mark.apiserver

QUALITY = {"samples": {"configMap": "traffic-samples"}, "metric": "Top1", "limit": "0.5"}
SECRET = "hunter2"


def samples(text: str) -> dict[str, Any]:
    meta = {"name": "traffic-samples"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"samples.jsonl": text}}


def sample(label: int) -> str:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [0, 1]}
    return json.dumps(
        {"inputs": [tensor], "outputs": [{"name": "label", "datatype": "INT64", "shape": [1], "data": [label]}]}
    )


def echo(request: bytes) -> tuple[int, bytes]:
    """A model whose scores are its input."""
    (sent,) = json.loads(request)["inputs"]
    return 200, json.dumps({"outputs": [{**sent, "name": "label"}]}).encode()


async def quality_is(namespace: Kubectl, *want: str) -> dict[str, Any]:
    return await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s, "QualityMet") == want)


async def test_a_plan_serves_once_its_answers_to_samples_are_as_expected(
    namespace: Kubectl, operators: Operators
) -> None:
    operators.engine.answers = echo
    key = f"{namespace.namespace}/traffic"
    namespace.apply(pool("fast"), session("traffic", quality=QUALITY))
    async with operators.running():
        await quality_is(namespace, "False", "SamplesMissing")
        namespace.apply(samples(f"{sample(0)}\n{sample(0)}\n{sample(1)}"))
        await quality_is(namespace, "False", "QualityMissed")
        assert key not in operators.engine.served

    async with operators.running():
        namespace.apply(samples(f"{sample(0)}\n{sample(1)}"))
        await quality_is(namespace, "True", "QualityMet")
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        assert operators.engine.served[key] == operators.engine.asked[-1]
        (plan,) = namespace.list("pplan")
        assert (plan["status"]["quality"]["score"], plan["status"]["quality"]["samples"]) == ("0.5", 2)


async def test_a_config_map_that_has_no_samples_is_sent_nowhere_and_repeated_nowhere(
    namespace: Kubectl, operators: Operators
) -> None:
    """A session may name any ConfigMap of its namespace, also one that its author cannot read."""
    operators.engine.answers = echo
    namespace.apply(pool("fast"), samples(f"password={SECRET}"), session("traffic", quality=QUALITY))
    async with operators.running():
        await quality_is(namespace, "False", "QualityMissed")

    assert operators.engine.asked == []
    assert SECRET not in json.dumps([namespace.list(kind) for kind in ("isess", "pplan", "events")])
