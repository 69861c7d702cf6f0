"""Pod templates: one with every field, the largest one, and those that a rule refuses."""

from typing import Any, Final

import pytest
from tests.crds.documents import POOL, Json

_LABEL_VALUE: Final = "v" * 63
_NAME: Final = "n" * 253

APP: Final = {"matchLabels": {"app": "cache"}}
NEAR: Final = {"labelSelector": APP, "topologyKey": "topology.kubernetes.io/zone"}
NODES: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
CONFIG: Final = {"name": "config", "items": [{"key": "a", "path": "conf/a"}], "optional": True}

EVERYTHING: Final[Json] = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}, "annotations": {"note": "any text"}},
    "image": "registry.example/serving-rocm:1.2.3",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [
        {"name": "HF_HOME", "value": "/mnt/cache/hf"},
        {"name": "PARTITA_ENGINE_CACHE", "value": "/mnt/cache/engines"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}},
        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "level"}}},
    ],
    "envFrom": [{"prefix": "APP_", "secretRef": {"name": "app"}}, {"configMapRef": {"name": "app"}}],
    "volumes": [
        {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
        {"name": "config", "configMap": {**CONFIG, "defaultMode": 256}},
        {"name": "hub", "secret": {"secretName": "hub", "items": [{"key": "token", "path": "token"}]}},
        {"name": "both", "projected": {"sources": [{"secret": {"name": "hub"}}, {"configMap": CONFIG}]}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "disk", "emptyDir": {}},
    ],
    "volumeMounts": [
        {"name": "cache", "mountPath": "/mnt/cache", "subPath": "team-a"},
        {"name": "config", "mountPath": "/etc/app", "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
    ],
    "resources": {
        "requests": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "20Gi"},
        "limits": {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "20Gi"},
    },
    "securityContext": {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"},
    "serviceAccountName": "models",
    "nodeSelector": {"disk": "ssd"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODES]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": NODES}],
        },
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": NEAR}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
    },
    "tolerations": [
        {"key": "dedicated", "value": "models", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": APP,
            "minDomains": 2,
        }
    ],
    "priorityClassName": "serving",
    "schedulerName": "volcano",
}


def largest_template() -> Json:
    """All lists and maps that rules read are full, all texts that they compare as long as they may be."""
    sources = [{"secret": {"name": _NAME}}] * 8
    requirement = {"key": f"{'k' * 252}/{'k' * 63}", "operator": "In", "values": ["v"] * 16}
    term = {"matchExpressions": [requirement] * 8}
    selector = {"matchExpressions": [{**requirement, "values": ["v"] * 32}] * 16}
    near = {"labelSelector": selector, "topologyKey": "t" * 316}
    pods = {
        "requiredDuringSchedulingIgnoredDuringExecution": [near] * 8,
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": near}] * 8,
    }
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    amounts = {"cpu": "123456789012345.123456789", "memory": "123456789012345.123456789Gi"}
    return {
        "metadata": {
            "labels": {f"{number:0253}/{number:062}": _LABEL_VALUE for number in range(16)},
            "annotations": {f"{number:0253}/{number:062}": "a" * 1024 for number in range(16)},
        },
        "env": [{"name": f"N{number:0127}", "value": "v" * 4096} for number in range(32)],
        "envFrom": [{"prefix": "P" * 128, "secretRef": {"name": _NAME}}] * 8,
        "volumes": [{"name": f"{number:063}", "projected": {"sources": sources}} for number in range(16)],
        "volumeMounts": [{"name": f"{15:063}", "mountPath": f"/{number:0511}"} for number in range(16)],
        "resources": {"requests": amounts, "limits": amounts},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * 8}},
            "podAffinity": pods,
            "podAntiAffinity": pods,
        },
        "tolerations": [{"key": "k" * 316, "value": _LABEL_VALUE, "effect": "NoSchedule"}] * 16,
        "topologySpreadConstraints": [{**spread, "topologyKey": f"{number:0316}"} for number in range(8)],
    }


def _template(id: str, template: Json, want: str) -> Any:
    return pytest.param(POOL, "spec.podTemplate", template, want, id=id)


def _nodes(requirement: Json) -> Json:
    terms = [{"matchExpressions": [requirement]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


REFUSED: Final = [
    _template("a label of Ray", {"metadata": {"labels": {"ray.io/group": "x"}}}, "labels may not contain keys"),
    _template(
        "an annotation of Partita",
        {"metadata": {"annotations": {"partita.dev/x": ""}}},
        "annotations may not contain keys",
    ),
    _template(
        "value and valueFrom",
        {"env": [{"name": "A", "value": "b", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        "value or valueFrom",
    ),
    _template("valueFrom of nothing", {"env": [{"name": "A", "valueFrom": {}}]}, "valueFrom needs exactly one"),
    _template("a variable of Ray", {"env": [{"name": "RAY_ADDRESS", "value": "x"}]}, "sets this variable"),
    _template("envFrom nothing", {"envFrom": [{"prefix": "A_"}]}, "envFrom needs exactly one"),
    _template("a volume of no type", {"volumes": [{"name": "v"}]}, "a volume needs exactly one"),
    _template("KubeRay's volume", {"volumes": [{"name": "shared-mem", "emptyDir": {}}]}, "has a volume of this name"),
    _template(
        "a projected source of nothing",
        {"volumes": [{"name": "v", "projected": {"sources": [{}]}}]},
        "a projected source needs exactly one",
    ),
    _template(
        "a mount in /tmp",
        {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/tmp/x"}]},
        "nothing can be mounted in",
    ),
    _template("a mount of no volume", {"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]}, "must name a volume"),
    _template(
        "a request above its limit",
        {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1G"}}},
        "a request may not exceed its limit",
    ),
    _template("Gt of nothing", _nodes({"key": "k", "operator": "Gt"}), "In, NotIn, Gt and Lt need values"),
    _template(
        "a value for Exists",
        {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        "operator Exists takes no value",
    ),
    _template("no key for Equal", {"tolerations": [{"value": "v"}]}, "a toleration without key"),
    _template(
        "seconds without NoExecute", {"tolerations": [{"key": "k", "tolerationSeconds": 1}]}, "needs effect NoExecute"
    ),
]
