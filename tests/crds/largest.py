"""The largest manifests that the schemas allow."""

from itertools import combinations, islice
from typing import Final

from tests.crds.documents import PLAN, POOL, SESSION, Json, changed
from tests.crds.pod_templates import largest_template
from tests.crds.versions import largest_versions

NAMES: Final = [f"{number:040}" for number in range(32)]
QUANTITY: Final = "123456789012345.123456789Gi"
LABEL: Final = "v" * 63
MODEL: Final = {
    "entrypoint": f"{'a' * 126}:{'b' * 126}",
    "kwargs": {f"argument-{number}": number for number in range(64)},
    "weights": "w" * 1024,
    "sha256": "0" * 64,
}
INPUT: Final = {"shape": [3, 1_048_576, 1_048_576], "dtype": "FP32"}
IMAGE: Final = {"layout": "CHW", "mean": [QUANTITY] * 3, "std": [QUANTITY] * 3}
INPUTS: Final = [{**INPUT, "name": f"{number:a>64}"} for number in range(8)]
FUNCTION: Final = {
    "entrypoint": MODEL["entrypoint"],
    "kwargs": MODEL["kwargs"],
    "image": "i" * 512,
    "resources": dict.fromkeys(("cpu", "memory", "ephemeral-storage"), QUANTITY),
}
TAKERS: Final = (
    {"model": MODEL, "input": INPUT, "image": IMAGE},
    {"function": FUNCTION, "inputs": INPUTS},
)
FAN_OUT: Final = {"mean": QUANTITY, "max": 256}
CONDITION: Final = {"when": f"{'outputs.label[0] == 2':512}", "share": "12.3456%"}
MEASURED_EDGE: Final = {
    "from": NAMES[0],
    "to": NAMES[1],
    "fanOut": QUANTITY,
    "share": "12.3456%",
    "declaredFanOut": QUANTITY,
    "declaredShare": "12.3456%",
}
MEASURED_ENDPOINT: Final = {"module": NAMES[0], "millis": 600_000, "declaredMillis": 600_000}
WINDOW: Final = {
    "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
    "start": "22:30",
    "durationMinutes": 60,
}


def _label_key(number: int) -> str:
    return f"{'d' * 61}.{'d' * 61}.{'d' * 61}.{'d' * 61}/{number:063}"


SELECTOR: Final = {
    "matchLabels": {_label_key(number): LABEL for number in range(16)},
    "matchExpressions": [{"key": _label_key(0), "operator": "In", "values": [LABEL] * 32}] * 16,
}


def _condition_of(module: str) -> Json:
    """What an edge from this module has in addition: functions have no conditions."""
    return CONDITION if int(module) % 2 == 0 else {}


def largest_session() -> Json:
    """All lists and maps that rules read are full, all texts as long as they may be."""
    # The last modules come first, so that a search for a module by its name takes long.
    ends = islice(combinations(reversed(NAMES), 2), 128)
    return changed(
        SESSION,
        "spec",
        {
            **SESSION["spec"],
            "modules": [{"name": name, **TAKERS[number % 2]} for number, name in enumerate(NAMES)],
            "edges": [{"from": one, "to": other, **_condition_of(one), "fanOut": FAN_OUT} for one, other in ends],
            "pools": NAMES,
            "poolSelector": SELECTOR,
            "batching": {"modules": dict.fromkeys(NAMES, "Elsa"), "elsa": {"alphaPercent": 120, "betaPercent": 120}},
            "availability": {"surviveLoss": "Replica", "servedShare": "12.5000%", "minReplicas": 1000},
            "maintenanceWindows": [WINDOW] * 16,
            "podTemplate": largest_template(),
            "versions": largest_versions(),
            "quality": {"samples": {"configMap": "s" * 253}, "metric": "Recall", "limit": "1.000000000", "k": 10_000},
        },
    )


def most_size_classes() -> Json:
    """As many size classes as a session may have, with modules that each of their names is compared with."""
    sizes = [{"size": 1_048_576 - 8 + number, "share": "12.5000%"} for number in range(1, 9)]
    given = {"shape": [1_048_576] * 8, "dtype": "UINT8", "variableDimension": 7, "padding": "255.000000000"}
    several = [{**given, "name": f"{number:a>64}"} for number in range(8)]
    sized = [
        {"name": name[-31:], "model": MODEL, "inputs": several, "sizeStep": 8, "sizes": sizes} for name in NAMES[:3]
    ]
    others = [{"name": name, "model": MODEL, "input": INPUT} for name in NAMES[3:11]]
    return changed(SESSION, "spec", {**SESSION["spec"], "modules": [*others, *sized], "edges": []})


def largest_pool() -> Json:
    """A pool that cuts its GPUs in as many ways as possible, with as many quotas and the largest pod template."""
    gpus = {"count": 1, "slices": {f"{number:032}": 7 for number in range(16)}}
    return changed(
        POOL,
        "spec",
        {
            "bandwidth": QUANTITY,
            "nodeSelector": SELECTOR,
            "sharing": {"mode": "MIG"},
            "mig": {"product": LABEL, "gpusPerNode": 16, "layouts": [{"nodes": 1, "gpus": [gpus] * 16}] * 16},
            "quotas": [{"namespace": f"{number:063}", "gpus": 1} for number in range(256)],
            "podTemplate": largest_template(),
        },
    )


def large_plan() -> Json:
    """A plan of 1 MB: as many modules, pipelines, stages and profiles as possible; etcd takes no larger objects."""
    (module,) = PLAN["spec"]["modules"]
    (pipeline,) = module["pipelines"]
    (stage,) = pipeline["stages"]
    pipelines = [
        {**pipeline, "name": f"{number:040}", "stages": [{**stage, "pool": NAMES[0]}] * 8} for number in range(16)
    ]
    return changed(
        changed(PLAN, "metadata.name", "large"),
        "spec",
        {
            **PLAN["spec"],
            "modules": [{**module, "name": name, "pipelines": pipelines} for name in NAMES],
            "alternatives": [{"strategy": NAMES[0], "feasible": True, "summary": "s" * 1024}] * 16,
            "profiles": [{"module": one, "pool": other, "key": LABEL} for one in NAMES for other in NAMES],
            "measured": {"edges": [MEASURED_EDGE] * 128, "endpoints": [MEASURED_ENDPOINT] * 32},
        },
    )
