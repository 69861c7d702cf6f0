"""Small valid manifests, and ways to change them."""

from copy import deepcopy
from typing import Any

Json = dict[str, Any]

DETECTOR: Json = {
    "name": "detector",
    "model": {"entrypoint": "tests.models:detector"},
    "input": {"shape": [3, 32, 32], "dtype": "FP32"},
}
CROP: Json = {"name": "crop", "function": {"entrypoint": "tests.models:crop", "maxMillis": 10}}

SESSION: Json = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "InferenceSession",
    "metadata": {"name": "traffic"},
    "spec": {
        "slo": {"latencyMs": 200, "attainment": "99%"},
        "rate": {"requestsPerSecond": 50, "arrival": "Poisson"},
        "modules": [DETECTOR, CROP],
        "edges": [{"from": "detector", "to": "crop", "fanOut": {"mean": "1.5", "max": 4}}],
    },
}
POOL: Json = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "GPUPool",
    "metadata": {"name": "fast"},
    "spec": {"pricePerHour": "0.71", "bandwidth": "10G", "sharing": {"mode": "MPS", "maxDivisor": 4}},
}
PLAN: Json = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "PipelinePlan",
    "metadata": {"name": "traffic-0123abcd"},
    "spec": {
        "approved": False,
        "session": {"name": "traffic", "uid": "1", "generation": 1},
        "inputsDigest": "0123abcd",
        "solution": {
            "strategy": "partita",
            "objective": "Cost",
            "value": "1",
            "bound": "1",
            "gap": "0",
            "seconds": "0.1",
        },
        "modules": [
            {
                "name": "detector",
                "rate": "50",
                "budgetMicros": 100_000,
                "pipelines": [
                    {
                        "name": "p0",
                        "batchSize": 4,
                        "throughput": "80",
                        "stages": [
                            {
                                "blocks": {"first": 0, "end": 10},
                                "pool": "fast",
                                "vgpuDivisor": 2,
                                "replicas": 1,
                                "latencyMicros": 50_000,
                            }
                        ],
                    }
                ],
            }
        ],
        "cost": {"allocatedPerHour": "0.355", "occupancyPerHour": "0.2"},
        "throughput": "80",
    },
}
REMOVED = object()


def changed(document: Json, path: str, value: Any) -> Json:
    """A copy with another value at a path such as `spec.modules.0.name`; REMOVED takes it away."""
    copy = deepcopy(document)
    place: Any = copy
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        if isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            place = place[part]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return copy
