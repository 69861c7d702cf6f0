"""The rules between fields: CEL and pydantic refuse the same documents with the same message.

CEL is evaluated with cel-python, since the API server of the tests is older than CEL rules.
"""

from collections.abc import Iterator
from typing import Any, get_args

import celpy
import pytest
from tests.crds.documents import CROP, DETECTOR, PLAN, POOL, REMOVED, SESSION, Json, changed

from partita_api.crd_schema import KINDS, CustomResource, structural_schema
from partita_api.manifests import ManifestError, parse_resource
from partita_api.meta import Rule, SpecModel

CEL_RESERVED = {"function", "namespace", "package", "import", "const", "loop", "return", "var", "void", "while"}
"""Words that Kubernetes escapes as __word__ in rules."""

SCHEMAS = {kind.name: structural_schema(kind.spec) for kind in KINDS}


def rules(schema: Json, path: str = "spec") -> Iterator[tuple[str, str, str]]:
    """(path, rule, message) of every rule of a schema."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["rule"], rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


def complaints(kind: str, document: Json, before: Json | None = None) -> list[str]:
    """Messages of all rules that a manifest breaks."""
    found: list[str] = []
    _check(SCHEMAS[kind], document["spec"], None if before is None else before["spec"], found)
    return found


def _check(schema: Json, value: Any, before: Any, found: list[str]) -> None:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"] and before is None:
            continue  # Kubernetes evaluates transition rules on updates only
        if not _holds(rule["rule"], value, before):
            found.append(rule["message"])
    for name, child in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            _check(child, value[name], (before or {}).get(name), found)
    if "items" in schema and isinstance(value, list):
        for item in value:
            _check(schema["items"], item, None, found)


def _holds(rule: str, value: Any, before: Any) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(rule))
    activation = {"self": celpy.json_to_cel(_escaped(value)), "oldSelf": celpy.json_to_cel(_escaped(before))}
    return bool(program.evaluate(activation))


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {f"__{k}__" if k in CEL_RESERVED else k: _escaped(v) for k, v in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


CEL_RULES = [
    pytest.param(rule, message, id=f"{kind.name}.{path}-{number}")
    for kind in KINDS
    for number, (path, rule, message) in enumerate(rules(SCHEMAS[kind.name]))
]


def models(annotation: Any, seen: set[type[SpecModel]]) -> None:
    """Adds all models that a field's type refers to."""
    if isinstance(annotation, type) and issubclass(annotation, SpecModel) and annotation not in seen:
        seen.add(annotation)
        for field in annotation.model_fields.values():
            models(field.annotation, seen)
    for argument in get_args(annotation):
        models(argument, seen)


def all_rules() -> list[Rule]:
    seen: set[type[SpecModel]] = set()
    for kind in KINDS:
        models(kind.spec, seen)
    return [rule for model in seen for rule in model.rules]


ALL_RULES = all_rules()


@pytest.mark.parametrize(("rule", "message"), CEL_RULES)
def test_every_rule_compiles_and_has_a_message(rule: str, message: str) -> None:
    celpy.Environment().compile(rule)
    assert len(message) > 20
    assert not any(f".{word}" in rule for word in CEL_RESERVED), "Kubernetes wants reserved words escaped"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_lists_and_maps_in_schemas_with_rules_are_bounded(kind: CustomResource) -> None:
    """Kubernetes refuses rules whose cost it cannot bound."""
    unbounded = [path for path, node in _nodes(SCHEMAS[kind.name]) if _is_unbounded(node)]
    assert unbounded == []


def _nodes(schema: Json, path: str = "spec") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from _nodes(schema["items"], f"{path}[]")


def _is_unbounded(node: Json) -> bool:
    if node.get("type") == "array":
        return "maxItems" not in node
    return "additionalProperties" in node and "maxProperties" not in node


@pytest.mark.parametrize("document", [SESSION, POOL, PLAN], ids=lambda document: document["kind"])
def test_good_manifests_break_no_rule(document: Json) -> None:
    assert complaints(document["kind"], document) == []


BOTH = {**DETECTOR, "function": CROP["function"]}
CURVES = {"curves": [{"model": "*", "alphaMicros": 1, "betaMicros": 1}]}
TWO_GPUS = [{"nodes": 1, "gpus": [{"count": 2, "slices": {"1g.10gb": 7}}]}]
IMAGE = {**DETECTOR, "image": {}}
MIG = {"product": "H100-80GB", "layouts": [{"nodes": 1, "gpus": [{"count": 1, "slices": {"1g.10gb": 7}}]}]}


REFUSED = [
    pytest.param(SESSION, "spec.modules.0", BOTH, "exactly one of model and function", id="model and function"),
    pytest.param(SESSION, "spec.modules.1", {"name": "crop"}, "exactly one of model and function", id="neither"),
    pytest.param(SESSION, "spec.modules.0.input", REMOVED, "needs input", id="model without input"),
    pytest.param(SESSION, "spec.modules.1.image", {}, "three dimensions", id="image without input"),
    pytest.param(
        SESSION,
        "spec.modules.0.model.file",
        "model.pt2",
        "exactly one of entrypoint and file",
        id="entrypoint and file",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0.model",
        {"kwargs": {}},
        "exactly one of entrypoint and file",
        id="neither entrypoint nor file",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0.model",
        {"file": "m.pt2", "weights": "m.safetensors"},
        "need entrypoint",
        id="weights of no entrypoint",
    ),
    pytest.param(SESSION, "spec.modules.0.model.sha256", "0" * 64, "needs file or weights", id="a digest of nothing"),
    pytest.param(
        SESSION, "spec.modules.0", {**IMAGE, "input": {"shape": [2, 4, 4]}}, "1 or 3 channels", id="2 channels"
    ),
    pytest.param(
        SESSION,
        "spec.modules.0",
        {**IMAGE, "input": {"shape": [3, 4, 4], "dtype": "INT64"}},
        "FP32, FP16 or UINT8",
        id="images as INT64",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0",
        {**IMAGE, "input": {"shape": [3, 4, 4], "dtype": "UINT8"}, "image": {"mean": ["1", "1", "1"]}},
        "not normalised",
        id="normalised UINT8",
    ),
    pytest.param(
        SESSION, "spec.modules.0.image", {"mean": ["0.5"]}, "one number for each channel", id="mean of one channel"
    ),
    pytest.param(
        POOL,
        "spec.nodeSelector",
        {"matchExpressions": [{"key": "gpu", "operator": "In"}]},
        "In and NotIn need values",
        id="In without values",
    ),
    pytest.param(SESSION, "spec.edges.0.to", "nowhere", "modules of this session", id="edge to nowhere"),
    pytest.param(SESSION, "spec.edges.0.to", "detector", "to itself", id="edge to itself"),
    pytest.param(
        changed(SESSION, "spec.edges", []),
        "spec.modules",
        [CROP],
        "at least one module with a model",
        id="no model",
    ),
    pytest.param(SESSION, "spec.frontend", {"httpPort": 9000, "grpcPort": 9000}, "must differ", id="one port twice"),
    pytest.param(SESSION, "spec.rate.gammaShape", "0.25", "needs rate.arrival Gamma", id="shape without Gamma"),
    pytest.param(
        changed(SESSION, "spec.rate", {"requestsPerSecond": 5}),
        "spec.rate.gammaShape",
        "0.25",
        "needs rate.arrival Gamma",
        id="shape without arrivals",
    ),
    pytest.param(
        SESSION,
        "spec.frontend",
        {"replicas": 2, "grpcPort": 9000},
        "must be 0, which takes a free port",
        id="one port for two frontends",
    ),
    pytest.param(
        SESSION,
        "spec.maintenanceWindows",
        [{"start": "25:00", "durationMinutes": 60}],
        "such as 22:30",
        id="window at no time of day",
    ),
    pytest.param(
        SESSION,
        "spec.engine",
        {"type": "KubeRay", "address": "http://ray:8265"},
        "needs engine.type Ray",
        id="an address for KubeRay",
    ),
    pytest.param(
        SESSION,
        "spec.autoscaling",
        {"mode": "Disabled", "scaleToZero": {"afterSeconds": 300}},
        "needs autoscaling.mode Enabled",
        id="nobody to scale to zero",
    ),
    pytest.param(POOL, "spec.sharing.mode", "Whole", "needs sharing.mode MPS", id="divided without MPS"),
    pytest.param(POOL, "spec.mig", MIG, "needs sharing.mode MIG", id="slices of a pool that is divided by MPS"),
    pytest.param(
        POOL,
        "spec",
        {"sharing": {"mode": "MIG"}, "mig": MIG, "emulation": CURVES},
        "remove emulation",
        id="slices of emulated GPUs",
    ),
    pytest.param(POOL, "spec.emulation", {}, "exactly one of curves and slowdown", id="emulation of nothing"),
    pytest.param(
        POOL,
        "spec.emulation",
        {**CURVES, "slowdown": "2"},
        "exactly one of curves and slowdown",
        id="emulated in two ways",
    ),
]
REFUSED_BY_PYDANTIC = [
    pytest.param(SESSION, "spec.modules.0.image", {"std": ["0", "1", "1"]}, "image.std must be above 0", id="std of 0"),
    pytest.param(POOL, "spec.emulation", {"slowdown": "200"}, "slowdown must be from 1 to 100", id="too slow"),
    pytest.param(POOL, "spec.bandwidth", "10", "at least 1M bits", id="bandwidth in gigabits"),
    pytest.param(
        POOL, "spec.quotas", [{"namespace": "a", "gpus": 1}] * 2, "a namespace twice", id="two quotas of a namespace"
    ),
    pytest.param(
        POOL,
        "spec",
        {"sharing": {"mode": "MIG"}, "mig": {**MIG, "gpusPerNode": 1, "layouts": TWO_GPUS}},
        "more GPUs of a node than mig.gpusPerNode",
        id="a layout of more GPUs than a node has",
    ),
]
"""What CEL cannot express."""


def pydantic_says(document: Json) -> str:
    """The message with which pydantic refuses a manifest."""
    with pytest.raises(ManifestError) as refused:
        parse_resource(document, "test")
    return str(refused.value)


@pytest.mark.parametrize(("document", "path", "value", "want"), REFUSED)
def test_cel_and_pydantic_refuse_the_same_with_the_same_message(
    document: Json, path: str, value: Any, want: str
) -> None:
    broken = changed(document, path, value)
    (complaint,) = complaints(document["kind"], broken)
    assert want in complaint
    assert pydantic_says(broken).endswith(f": {complaint}")


@pytest.mark.parametrize(("document", "path", "value", "want"), REFUSED_BY_PYDANTIC)
def test_pydantic_refuses_what_cel_cannot_express(document: Json, path: str, value: Any, want: str) -> None:
    broken = changed(document, path, value)
    assert complaints(document["kind"], broken) == []
    assert want in pydantic_says(broken)


def test_every_rule_has_a_document_that_breaks_it() -> None:
    desired = {str(case.values[3]) for case in (*REFUSED, *REFUSED_BY_PYDANTIC)}
    untested = [rule.message for rule in ALL_RULES if not any(want in rule.message for want in desired)]
    assert untested == []
    assert len(ALL_RULES) > 20


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        pytest.param(SESSION, "spec.edges", REMOVED, id="no edges"),
        pytest.param(
            SESSION, "spec.rate", {"requestsPerSecond": 5, "arrival": "Gamma", "gammaShape": "0.25"}, id="Gamma"
        ),
        pytest.param(SESSION, "spec.frontend", {"replicas": 2, "grpcPort": 0}, id="a free port for each frontend"),
        pytest.param(SESSION, "spec.frontend", {"replicas": 1, "grpcPort": 9000}, id="a port for one frontend"),
        pytest.param(
            SESSION,
            "spec.maintenanceWindows",
            [{"days": ["Sat"], "start": "22:30", "durationMinutes": 60}],
            id="window",
        ),
        pytest.param(POOL, "spec.sharing", REMOVED, id="no sharing"),
        pytest.param(POOL, "spec.sharing", {"mode": "Whole", "maxDivisor": 1}, id="not divided"),
        pytest.param(POOL, "spec.emulation", CURVES, id="curves"),
        pytest.param(POOL, "spec", {"sharing": {"mode": "MIG"}, "mig": MIG}, id="slices"),
        pytest.param(POOL, "spec.emulation", {"slowdown": "2.5"}, id="slowdown"),
    ],
)
def test_rules_let_pass_what_is_right(document: Json, path: str, value: Any) -> None:
    assert complaints(document["kind"], changed(document, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        pytest.param("spec.approved", True, False, id="approving"),
        pytest.param("spec.modules.0.pipelines.0.batchSize", 8, True, id="another batch size"),
        pytest.param("spec.modules.0.pipelines.0.stages.0.replicas", 5, True, id="more replicas"),
        pytest.param("spec.inputsDigest", "ffff", True, id="other inputs"),
        pytest.param("spec.session.name", "other", True, id="another session"),
        pytest.param("spec.cost.allocatedPerHour", "0", True, id="another cost"),
        pytest.param("spec.throughput", "1000", True, id="another throughput"),
        pytest.param("spec.profiles", [{"module": "m", "pool": "p", "key": "k"}], True, id="other profiles"),
    ],
)
def test_only_the_approval_of_a_plan_may_change(path: str, value: Any, refused: bool) -> None:
    found = complaints("PipelinePlan", changed(PLAN, path, value), before=PLAN)
    assert bool(found) is refused
