"""Pod templates on real nodes: compiled models on a volume, an image for one session, and pods that cannot start."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kuberay_sessions import WORKERS, Watch, installed_chart, session
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS, PRODUCTS, is_ready
from tests.e2e.conftest import detection
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kubectl import Json, Kubectl, condition, eventually

BASE_IMAGE = "partita.dev/partita:dev"
"""Without the models of the tests."""
CLAIM = "compiled-models"
L4 = "kuberay-l4"
HEAD_BESIDE_THE_POOL = {
    "head": {"resources": {"cpu": "1", "memory": "3Gi"}, "nodeSelector": {"kubernetes.io/hostname": "control"}}
}
"""The pool's node has two CPUs: room for all its workers, but not for the head as well."""
MODELS = Path(__file__).parents[1] / "e2e"
POLICY = {
    "allowedImages": ["partita.dev/*"],
    "allowedVariables": ["PYTHONPATH", "TOKEN"],
    "allowedConfigMaps": ["models"],
    "allowedSecrets": ["absent"],
    "allowedClaims": ["absent"],
}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="its volume is a folder that all nodes share"),
]


@pytest.fixture(scope="module")
def admin() -> Kubectl:
    return Kubectl(KUBECONFIG, "default")


@pytest.fixture(scope="module")
def users(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with (
        running_kuberay(admin, tmp_path_factory.mktemp("kuberay")),
        installed_chart(admin, HEAD_BESIDE_THE_POOL, podTemplates=POLICY) as users,
    ):
        yield users


@pytest.fixture
def volume(users: Kubectl, admin: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """A bound PersistentVolumeClaim, and the folder of its files."""
    tmp_path.chmod(0o777)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    users.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": {**common, "capacity": size, "hostPath": {"path": str(tmp_path)}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {**common, "volumeName": CLAIM, "resources": {"requests": size}},
        },
    )
    yield tmp_path
    users("delete", "pvc", CLAIM, "--wait=false")
    admin("delete", "pv", CLAIM, "--wait=false")


def pool_with(volume: str) -> Json:
    """A pool of three accelerators whose pods keep Inductor's code on the claim."""
    template = {
        "volumes": [{"name": "compiled", "persistentVolumeClaim": {"claimName": volume}}],
        "volumeMounts": [{"name": "compiled", "mountPath": "/compiled"}],
        "env": [{"name": "TORCHINDUCTOR_CACHE_DIR", "value": "/compiled/inductor"}],
    }
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": L4},
        "spec": {
            "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": PRODUCTS["l4"]}},
            "count": 3,
            "pricePerHour": "0.8",
            "podTemplate": template,
        },
    }


def compiled(volume: Path) -> dict[str, int]:
    """The libraries that Inductor has written, and when."""
    return {path.name: path.stat().st_mtime_ns for path in volume.rglob("*.so")}


async def test_compiled_models_survive_their_pods(users: Kubectl, admin: Kubectl, volume: Path) -> None:
    watch, stages = Watch(users), f"{WORKERS},partita.dev/pool={L4}"
    admin.apply(pool_with(CLAIM))
    made = detection("compiled", engine={"type": "KubeRay"}, pools=[L4], execution={"backend": "Inductor"})
    del made["spec"]["poolSelector"]
    made["spec"] |= {"autoscaling": {"mode": "Disabled"}, "slo": {"latencyMs": 4000}}
    made["spec"]["rate"] = {"requestsPerSecond": 1}
    users.apply(made)
    await eventually(lambda: users.get("isess", "compiled"), is_ready, PATIENCE_SECONDS)
    first, before = watch.workers(stages), compiled(volume)
    assert before

    users("delete", "pods", "-l", stages, "--grace-period=0", "--force")
    replaced = await eventually(
        lambda: watch.workers(stages),
        lambda workers: len(workers) == len(first) and all(workers.values()) and not first.keys() & workers.keys(),
        PATIENCE_SECONDS,
    )
    await eventually(lambda: users.get("isess", "compiled"), is_ready, PATIENCE_SECONDS)

    assert compiled(volume) == before
    assert replaced
    users("delete", "isess", "compiled", "--timeout=300s")
    admin("delete", "gpool", L4, "--timeout=120s")


OF_CONFIG_MAP: Json = {
    "env": [{"name": "PYTHONPATH", "value": "/models"}],
    "volumes": [{"name": "models", "configMap": {"name": "models"}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models/tests/e2e"}],
}
"""The part of a pod template with the models of the tests."""


def with_template(name: str, **template: Any) -> Json:
    made = session(name, 5)
    made["spec"]["podTemplate"] = template
    return made


@pytest.fixture(scope="module")
def own(users: Kubectl) -> str:
    """A session whose pods have an image of their own, and its models from a ConfigMap."""
    files = {name: (MODELS / name).read_text() for name in ("workload.py", "functions.py")}
    users.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "models"}, "data": files})
    users.apply(with_template("own", image=BASE_IMAGE, **OF_CONFIG_MAP))
    return "own"


async def test_a_session_has_an_image_of_its_own(users: Kubectl, own: str) -> None:
    await eventually(lambda: users.get("isess", own), is_ready, PATIENCE_SECONDS)

    pods = users.list("pods", "-l", f"{WORKERS},partita.dev/pod-template")
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {BASE_IMAGE}
    others = users.list("pods", "-l", f"{WORKERS},!partita.dev/pod-template")
    assert {container["image"] for pod in others for container in pod["spec"]["containers"]} <= {IMAGE}


def with_function(name: str, image: str) -> Json:
    """A session with a function in this image, which has its module from the ConfigMap of `own`."""
    made = with_template(name, **OF_CONFIG_MAP)
    function = {"entrypoint": "tests.e2e.functions:crop", "image": image}
    made["spec"]["modules"].append({"name": "crop", "function": function})
    made["spec"]["edges"] = [{"from": "detector", "to": "crop"}]
    return made


def function_containers(users: Kubectl) -> list[Json]:
    """The states of the containers that run functions of other images, by pod."""
    pods = users.list("pods", "-l", f"{WORKERS},app.kubernetes.io/component=frontend,partita.dev/pod-template")
    statuses = [status for pod in pods for status in pod["status"].get("initContainerStatuses", ())]
    return [status["state"] for status in statuses if status["name"].startswith("functions-")]


@pytest.mark.usefixtures("own")
async def test_a_function_has_an_image_of_its_own(users: Kubectl) -> None:
    users.apply(with_function("cropped", BASE_IMAGE))
    await eventually(lambda: users.get("isess", "cropped"), is_ready, PATIENCE_SECONDS)
    (state,) = function_containers(users)
    assert "running" in state

    users.apply(with_function("cropped", "partita.dev/absent:1"))
    found = await eventually(
        lambda: condition(users.get("isess", "cropped"), "RolledOut"),
        lambda said: "partita.dev/absent:1" in said.get("message", ""),
    )

    print(found["message"])
    assert [state for state in function_containers(users) if "running" in state], "the earlier frontend stays"
    users("delete", "isess", "cropped", "--timeout=300s")


SECRET_OF_VARIABLE = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "token"}}}


@pytest.mark.parametrize(
    ("template", "named"),
    [
        pytest.param({"image": "partita.dev/absent:1"}, "partita.dev/absent:1", id="image"),
        pytest.param({"env": [SECRET_OF_VARIABLE]}, 'secret "absent" not found', id="Secret of a variable"),
        pytest.param(
            {
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            },
            "PersistentVolumeClaim absent",
            id="claim",
        ),
        pytest.param(
            {
                "volumes": [{"name": "v", "secret": {"secretName": "absent"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            },
            "Secret absent",
            id="Secret of a volume",
        ),
    ],
)
async def test_a_condition_names_what_a_pod_waits_for(
    users: Kubectl, own: str, template: dict[str, Any], named: str
) -> None:
    await eventually(lambda: users.get("isess", own), is_ready, PATIENCE_SECONDS)
    users.apply(with_template("bad", **template))

    found = await eventually(
        lambda: condition(users.get("isess", "bad"), "RolledOut"), lambda said: named in said.get("message", "")
    )

    print(found["message"])
    assert is_ready(users.get("isess", own)), "another session is not disturbed"
    users("delete", "isess", "bad", "--timeout=300s")
