"""The rules between fields: the API server and pydantic refuse the same documents with the same message."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from tests.crds import pod_templates, sized_modules, versions
from tests.crds.conftest import ApiServer
from tests.crds.documents import CROP, DETECTOR, POOL, REMOVED, SESSION, Json, changed

from partita_api.crd_schema import KINDS, CustomResource, structural_schema
from partita_api.manifests import ManifestError, parse_resource
from partita_api.meta import Rule, SpecModel


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_lists_and_maps_in_schemas_with_rules_are_bounded(kind: CustomResource) -> None:
    """Kubernetes refuses rules whose cost it cannot bound."""
    unbounded = [path for path, node in _nodes(structural_schema(kind.spec)) if _is_unbounded(node)]
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


ENDPOINT = {"url": "http://triton.models.svc:8000", "model": "plates"}
TEXT = {"shape": [1], "dtype": "BYTES"}
CALLED = {"name": "crop", "endpoint": ENDPOINT, "input": DETECTOR["input"]}
BOTH = {**DETECTOR, "function": CROP["function"]}
BOTH_INPUTS = {"input_ids": "ids", "attention_mask": "1"}


def mapped(edge: Json) -> Json:
    """A session with a model of several inputs, and one edge."""
    modules = [*SESSION["spec"]["modules"], {**SEVERAL, "name": "encoder"}]
    return changed(SESSION, "spec", {**SESSION["spec"], "modules": modules, "edges": [edge]})


CURVES = {"curves": [{"model": "*", "alphaMicros": 1, "betaMicros": 1}]}
TWO_GPUS = [{"nodes": 1, "gpus": [{"count": 2, "slices": {"1g.10gb": 7}}]}]
IMAGE = {**DETECTOR, "image": {}}
IDS = {"name": "input_ids", "shape": [128], "dtype": "INT64"}
SEVERAL = {"name": "detector", "model": DETECTOR["model"], "inputs": [IDS, {**IDS, "name": "attention_mask"}]}
DEVICES = {"deviceClassName": "mig.nvidia.com", "driver": "gpu.nvidia.com", "attributes": {"profile": "1g.10gb"}}
ELASTIC = {"maxCount": 16}
MIG = {"product": "H100-80GB", "layouts": [{"nodes": 1, "gpus": [{"count": 1, "slices": {"1g.10gb": 7}}]}]}


REFUSED = [
    pytest.param(SESSION, "spec.modules.0", BOTH, "exactly one of model, function", id="model and function"),
    pytest.param(SESSION, "spec.modules.1", {"name": "crop"}, "exactly one of model, function", id="neither"),
    pytest.param(
        SESSION, "spec.modules.1.function.resources", {"cpu": "2"}, "and need image", id="resources without an image"
    ),
    pytest.param(
        SESSION, "spec.modules.0.endpoint", ENDPOINT, "exactly one of model, function", id="model and endpoint"
    ),
    pytest.param(
        SESSION, "spec.modules.1", {"name": "crop", "endpoint": ENDPOINT}, "needs input", id="endpoint without input"
    ),
    pytest.param(
        SESSION,
        "spec.modules.1",
        {**CALLED, "endpoint": {**ENDPOINT, "protocol": "OpenAIChat", "outputs": ["text"]}, "input": TEXT},
        "need protocol OpenInference",
        id="named outputs of OpenAI",
    ),
    pytest.param(
        SESSION,
        "spec.modules.1",
        {**CALLED, "endpoint": {**ENDPOINT, "protocol": "OpenAIEmbeddings"}},
        "take one text; set input to shape [1]",
        id="tensors for OpenAI",
    ),
    pytest.param(SESSION, "spec.modules.0.input", REMOVED, "needs input, or a model inputs", id="model without input"),
    pytest.param(
        SESSION,
        "spec.modules.1",
        {"name": "crop", "endpoint": ENDPOINT, "inputs": [IDS]},
        "needs input",
        id="several inputs of an endpoint",
    ),
    pytest.param(SESSION, "spec.modules.0.inputs", [IDS], "in input, or several in inputs", id="input and inputs"),
    pytest.param(
        SESSION, "spec.modules.0", {**SEVERAL, "inputs": [IDS, IDS]}, "inputs need different names", id="a name twice"
    ),
    pytest.param(
        SESSION,
        "spec.modules.0",
        {**SEVERAL, "inputs": [IDS, {"name": "text", "shape": [1], "dtype": "BYTES"}]},
        "numbers, not BYTES",
        id="texts as one of several inputs",
    ),
    pytest.param(
        SESSION,
        "spec",
        {
            **SESSION["spec"],
            "modules": [*SESSION["spec"]["modules"], {**SEVERAL, "name": "encoder"}],
            "edges": [{"from": "detector", "to": "encoder"}],
        },
        "an edge from a model to a model with inputs needs map",
        id="a model in front of a model of several inputs",
    ),
    *(
        pytest.param(
            mapped(edge), "spec.rate", {"requestsPerSecond": 5}, "map is for edges without functions and sizes", id=id
        )
        for edge, id in (
            ({"from": "detector", "to": "encoder", "map": {"input_ids": "ids"}}, "a map without an input"),
            ({"from": "detector", "to": "encoder", "map": {**BOTH_INPUTS, "x": "0"}}, "a map of one input too many"),
            ({"from": "detector", "to": "encoder", "map": {"input_ids": "0", "x": "1"}}, "a map of another input"),
            ({"from": "encoder", "to": "detector", "map": {"image": "0"}}, "a map of an input without a name"),
            ({"from": "crop", "to": "encoder", "map": BOTH_INPUTS}, "a map of a function"),
            ({"from": "encoder", "to": "crop", "map": {"input": "0"}}, "a map for a function"),
        )
    ),
    pytest.param(SESSION, "spec.modules.1.image", {}, "three dimensions", id="image without input"),
    pytest.param(
        SESSION,
        "spec.modules.0.model.file",
        "model.pt2",
        "exactly one of entrypoint, file and huggingFace",
        id="entrypoint and file",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0.model",
        {"kwargs": {}},
        "exactly one of entrypoint, file and huggingFace",
        id="neither entrypoint nor file",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0.model",
        {"entrypoint": "a:b", "file": "m.pt2", "huggingFace": "acme/model"},
        "exactly one of entrypoint, file and huggingFace",
        id="all three sources",
    ),
    pytest.param(
        SESSION,
        "spec.modules.0.model",
        {"file": "m.pt2", "revision": "v1"},
        "need huggingFace",
        id="a revision of a file",
    ),
    pytest.param(SESSION, "spec.modules.0.model.task", "fill-mask", "need huggingFace", id="a task of an entrypoint"),
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
        SESSION, "spec.modules.0.input", {"shape": [1], "dtype": "BYTES"}, "numbers, not BYTES", id="texts for a model"
    ),
    pytest.param(
        SESSION,
        "spec.modules.1.input",
        {"shape": [2, 2], "dtype": "BYTES"},
        "BYTES needs a shape of one dimension",
        id="a table of texts",
    ),
    pytest.param(
        SESSION,
        "spec.modules.1.input",
        {"shape": [1025], "dtype": "BYTES"},
        "of at most 1024 elements",
        id="too many texts",
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
    pytest.param(SESSION, "spec.edges.0.share", "20%", "share is of the answers for which when", id="share of all"),
    pytest.param(
        SESSION,
        "spec.edges",
        [{"from": "crop", "to": "detector", "when": "outputs.found[0] > 0"}],
        "when reads the outputs of a model or an endpoint",
        id="a condition on a function",
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
        {"type": "KubeRay", "cluster": "vision"},
        "needs engine.type Ray",
        id="a cluster for KubeRay",
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
    pytest.param(POOL, "spec", {"devices": DEVICES, "emulation": CURVES}, "remove devices", id="devices, emulated"),
    pytest.param(
        POOL,
        "spec",
        {"sharing": {"mode": "MIG"}, "mig": MIG, "devices": DEVICES},
        "remove mig or devices",
        id="slices of claimed devices",
    ),
    pytest.param(POOL, "spec", {"elastic": ELASTIC, "count": 4}, "remove count", id="a count of an elastic pool"),
    pytest.param(
        POOL, "spec", {"elastic": ELASTIC, "emulation": CURVES}, "remove elastic or emulation", id="elastic, emulated"
    ),
    pytest.param(
        POOL,
        "spec",
        {"sharing": {"mode": "MIG"}, "mig": MIG, "elastic": ELASTIC},
        "mig cuts nodes that are present",
        id="slices of nodes that come",
    ),
    pytest.param(POOL, "spec.emulation", {}, "exactly one of curves and slowdown", id="emulation of nothing"),
    pytest.param(
        POOL,
        "spec.emulation",
        {**CURVES, "slowdown": "2"},
        "exactly one of curves and slowdown",
        id="emulated in two ways",
    ),
    pytest.param(SESSION, "spec.modules.0.image", {"std": ["0", "1", "1"]}, "image.std must be above 0", id="std of 0"),
    pytest.param(POOL, "spec.emulation", {"slowdown": "0.9"}, "slowdown must be from 1 to 100", id="too fast"),
    pytest.param(POOL, "spec.emulation", {"slowdown": "100.1"}, "slowdown must be from 1 to 100", id="too slow"),
    pytest.param(POOL, "spec.bandwidth", "10", "at least 1M bits", id="bandwidth in gigabits"),
    pytest.param(POOL, "spec.bandwidth", 999_999, "at least 1M bits", id="bandwidth as a number"),
    pytest.param(
        POOL,
        "spec",
        {"sharing": {"mode": "MIG"}, "mig": {**MIG, "gpusPerNode": 1, "layouts": TWO_GPUS}},
        "more GPUs of a node than mig.gpusPerNode",
        id="a layout of more GPUs than a node has",
    ),
    pytest.param(SESSION, "spec.clients", {}, "clients needs apiKeys or jwt", id="clients without credentials"),
    pytest.param(SESSION, "spec.expose", {}, "exactly one of ingress and gateway", id="exposed by nothing"),
    pytest.param(
        SESSION,
        "spec.expose",
        {"ingress": {"host": "a.example.com"}, "gateway": {"name": "public", "hostname": "a.example.com"}},
        "exactly one of ingress and gateway",
        id="exposed in two ways",
    ),
    pytest.param(
        SESSION,
        "spec.expose",
        {"gateway": {"name": "public", "hostname": "a.example.com:443"}},
        "gateway.hostname must be a DNS name",
        id="a port",
    ),
    pytest.param(
        SESSION,
        "spec",
        {
            **SESSION["spec"],
            "frontend": {"grpcPort": 0},
            "expose": {"gateway": {"name": "public", "hostname": "a.example.com", "grpcHostname": "_.example.com"}},
        },
        "gateway.grpcHostname must be a DNS name",
        id="no name for gRPC",
    ),
    pytest.param(
        SESSION,
        "spec",
        {
            **SESSION["spec"],
            "frontend": {"grpcPort": 0},
            "expose": {"gateway": {"name": "public", "hostname": "a.example.com", "grpcHostname": "a.example.com"}},
        },
        "gateway.hostname and gateway.grpcHostname must differ",
        id="one host for HTTP and gRPC",
    ),
    pytest.param(
        SESSION,
        "spec.expose",
        {"gateway": {"name": "public", "hostname": "a.example.com", "grpcHostname": "b.example.com"}},
        "grpcHostname needs frontend.grpcPort",
        id="a host for gRPC that is not served",
    ),
    pytest.param(
        SESSION, "spec.expose", {"ingress": {"host": "Serve.example.com"}}, "DNS name in lower case", id="a capital"
    ),
    pytest.param(SESSION, "spec.expose", {"ingress": {"host": "10.0.0.1"}}, "DNS name in lower case", id="an address"),
    pytest.param(
        SESSION, "spec.expose", {"ingress": {"host": "*.example.com"}}, "without a port or a wildcard", id="a wildcard"
    ),
    pytest.param(
        SESSION,
        "spec",
        {**SESSION["spec"], "podTemplate": {"image": "x"}, "engine": {"type": "Ray"}},
        "podTemplate needs engine KubeRay",
        id="a template of pods of Ray",
    ),
    pytest.param(
        SESSION,
        "spec",
        {**SESSION["spec"], "podTemplate": {}, "engine": {"cluster": "vision"}},
        "podTemplate needs engine KubeRay",
        id="a template of pods of a named cluster",
    ),
    pytest.param(
        SESSION,
        "spec.quality",
        {"samples": {"configMap": "samples"}, "metric": "Top1", "limit": "98"},
        "quality.limit of Top1, ExactText and Recall is a share; write 1 or less, such as 0.98",
        id="a share in percent",
    ),
    *pod_templates.REFUSED,
    *sized_modules.REFUSED,
    *versions.REFUSED,
]


def pydantic_says(document: Json) -> list[str]:
    """What pydantic says against a manifest, in the form of the API server."""
    with pytest.raises(ManifestError) as refused:
        parse_resource(document, "test")
    complaints = [line.strip().partition(": ") for line in str(refused.value).splitlines()[1:]]
    return [re.sub(r"\.(\d+)", r"[\1]", path) + f": Invalid value: {message}" for path, _, message in complaints]


@pytest.mark.parametrize(("document", "path", "value", "want"), REFUSED)
def test_pydantic_refuses(document: Json, path: str, value: Any, want: str) -> None:
    (said,) = pydantic_says(changed(document, path, value))
    assert want in said


@pytest.mark.apiserver
@pytest.mark.parametrize("broken", [pytest.param(changed(*case.values[:3]), id=case.id) for case in REFUSED])
def test_the_api_server_refuses_with_the_message_of_pydantic(server: ApiServer, broken: Json) -> None:
    assert server.complaints(broken) == pydantic_says(broken)


TWICE = [
    pytest.param(POOL, "spec.quotas", [{"namespace": "a", "gpus": 1}] * 2, "quotas has a namespace twice", id="quotas"),
    pytest.param(
        POOL, "spec.podTemplate.env", [{"name": "A", "value": "b"}] * 2, "has two entries of one name", id="variables"
    ),
    pytest.param(
        SESSION, "spec.versions", [versions.version()] * 2, "versions need different names", id="names of versions"
    ),
]


@pytest.mark.apiserver
@pytest.mark.parametrize(("document", "path", "value", "want"), TWICE)
def test_the_schema_itself_keeps_lists_from_two_entries_of_one_key(
    server: ApiServer, document: Json, path: str, value: Any, want: str
) -> None:
    broken = changed(document, path, value)
    (said,) = pydantic_says(broken)
    assert want in said
    (refused,) = server.complaints(broken)
    assert refused.startswith(f"{path}[1]: Duplicate value: ")


def test_every_rule_that_the_schema_itself_keeps_has_a_document_that_breaks_it() -> None:
    kept = [rule.message for rule in ALL_RULES if rule.cel is None]
    assert [message for message in kept if not any(str(case.values[3]) in message for case in TWICE)] == []


@pytest.mark.apiserver
def test_keys_of_maps_are_checked_by_pydantic_alone(server: ApiServer) -> None:
    broken = changed(SESSION, "spec.batching", {"modules": {"Detector": "Eager"}})
    (said,) = pydantic_says(broken)
    assert said.startswith("spec.batching.modules.Detector")
    assert server.complaints(broken) == []


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        pytest.param(POOL, "spec.bandwidth", "fast", id="bandwidth"),
        pytest.param(POOL, "spec.emulation", {"slowdown": "twice"}, id="slowdown"),
        pytest.param(SESSION, "spec.modules.0.image", {"std": ["a", "1", "1"]}, id="std"),
        pytest.param(SESSION, "spec.modules.0", sized_modules.padded_with("zero"), id="padding"),
    ],
)
def test_rules_say_nothing_about_what_is_no_quantity(server: ApiServer, document: Json, path: str, value: Any) -> None:
    (said,) = server.complaints(changed(document, path, value))
    assert "should match" in said


def test_every_rule_has_a_document_that_breaks_it() -> None:
    desired = {str(case.values[3]) for case in REFUSED}
    untested = [
        rule.message for rule in ALL_RULES if rule.cel is not None and not any(want in rule.message for want in desired)
    ]
    assert untested == []
    assert len(ALL_RULES) > 20


@pytest.mark.apiserver
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
        pytest.param(POOL, "spec.devices", DEVICES, id="devices"),
        pytest.param(POOL, "spec.elastic", ELASTIC, id="elastic"),
        pytest.param(POOL, "spec", {"devices": DEVICES, "elastic": ELASTIC}, id="elastic, with devices"),
        pytest.param(POOL, "spec", {"sharing": {"mode": "MIG"}, "elastic": ELASTIC}, id="nodes come with their slices"),
        pytest.param(POOL, "spec.emulation", {"slowdown": "1"}, id="no slowdown"),
        pytest.param(POOL, "spec.emulation", {"slowdown": 100}, id="slowdown as a number"),
        pytest.param(POOL, "spec.bandwidth", "0.001G", id="bandwidth"),
        pytest.param(POOL, "spec.podTemplate", pod_templates.EVERYTHING, id="a pod template with every field"),
        pytest.param(SESSION, "spec.podTemplate", pod_templates.EVERYTHING, id="a session with a pod template"),
        pytest.param(
            SESSION,
            "spec.modules.1.function",
            {**CROP["function"], "image": "registry.example/crop@sha256:0", "resources": {"cpu": "2", "memory": "1Gi"}},
            id="a function with an image",
        ),
        pytest.param(POOL, "spec.podTemplate", {}, id="an empty pod template"),
        pytest.param(SESSION, "spec.modules.1.input", {"shape": [1024], "dtype": "BYTES"}, id="texts for a function"),
        pytest.param(SESSION, "spec.modules.0.input", {"shape": [3], "dtype": "BOOL"}, id="truth values for a model"),
        pytest.param(SESSION, "spec.modules.0", SEVERAL, id="several inputs"),
        pytest.param(
            mapped({"from": "detector", "to": "encoder", "map": BOTH_INPUTS}),
            "spec.rate",
            {"requestsPerSecond": 5},
            id="a map of several inputs",
        ),
        pytest.param(
            mapped({"from": "encoder", "to": "detector", "map": {"input": "pooled"}}),
            "spec.rate",
            {"requestsPerSecond": 5},
            id="a map of one input",
        ),
        pytest.param(
            SESSION, "spec.modules.0.image", {"std": ["0.000000001", "1m", "123456789012345.123456789Pi"]}, id="std"
        ),
        *sized_modules.ACCEPTED,
        *versions.ACCEPTED,
        pytest.param(
            SESSION,
            "spec.quality",
            {"samples": {"configMap": "samples"}, "metric": "MaxAbsoluteError", "limit": 98},
            id="a limit of errors",
        ),
    ],
)
def test_rules_let_pass_what_is_right(server: ApiServer, document: Json, path: str, value: Any) -> None:
    right = changed(document, path, value)
    assert server.complaints(right) == []
    parse_resource(right, "test")
