"""Engine KubeRay on a real API server: it touches only its own Secret, and names missing and old definitions."""

import copy
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from tests.docs.pages import pasted
from tests.operator.chart.charts import rendered
from tests.operator.engines.kuberay.kuberay_crds import KINDS, kuberay_crd, kuberay_definitions
from tests.operator.engines.serve_model import stage_config
from tests.operator.kubectl import Kubectl, eventually, new_namespace
from tests.runtime.serving.plans import application

from partita_api.pod.template import PodTemplate
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.kubeconfig import write_kubeconfig
from partita_operator.certificates.renewal import (
    NEXT_CERTIFICATE,
    NEXT_KEY,
    RENEWED_AFTER,
    TRUSTED_BEFORE_USE,
    renewed,
)
from partita_operator.engines.kuberay.authentication import (
    REPLACE_FOR_TOKEN,
    REQUEST_ANNOTATION,
    SECRET,
    TOKEN_KEY,
    RayToken,
    authenticates,
    tls_name,
)
from partita_operator.engines.kuberay.engine import KubeRayEngine
from partita_operator.engines.kuberay.fault_tolerance import PASSWORD_KEY
from partita_operator.engines.kuberay.ray_secrets import RaySecrets
from partita_operator.engines.kuberay.rayservice_manifest import LABELS, rayservice
from partita_operator.engines.kuberay.worker_groups import NUMBERS
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import ApiError
from partita_operator.kube.rayservices import RayServices
from partita_operator.kube.resources import SecretResource
from partita_operator.pod_templates.session_pool import session_pool
from partita_operator.ports import EngineUnavailableError, ServingSpec, StageTarget
from partita_operator.settings.kuberay import KubeRaySettings, RayAuthentication
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]
SETTINGS = KubeRaySettings(image="registry/serving:1")
TOKEN = RayToken(SECRET, "one", generated=True)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Kubectl]:
    with new_namespace(control_plane.kubeconfig, f"tokens-{uuid4().hex[:8]}") as admin:
        yield admin


@pytest.fixture
async def operator(control_plane: ControlPlane, namespace: Kubectl, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    """The API server as the operator uses it, with the rights that the chart gives it."""
    name = namespace.namespace
    role = rendered({"scope": "Cluster", "kuberay": {"image": "x"}})["ClusterRole", "partita"]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    version = "rbac.authorization.k8s.io/v1"
    namespace.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {**role, "metadata": {"name": name}},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    kubeconfig = tmp_path / "kubeconfig"
    token = namespace("create", "token", name).strip()
    write_kubeconfig(kubeconfig, control_plane.url, control_plane.authority.certificate, token)
    async with KubernetesClient(await load_config(kubeconfig)) as client:
        yield client
    namespace("delete", "clusterrole,clusterrolebinding", name)


def stored(namespace: Kubectl) -> Json | None:
    secret = namespace.get("secret", SECRET)
    return secret["data"] if secret else None


async def test_a_namespace_has_one_token_until_it_is_removed(operator: KubernetesClient, namespace: Kubectl) -> None:
    secrets, standby = RaySecrets(operator, SETTINGS), RaySecrets(operator, SETTINGS)
    assert await secrets.token(namespace.namespace) is None

    made = await secrets.ensure(namespace.namespace)
    assert made is not None
    assert made.value
    assert len(made.value) > 32
    assert await standby.ensure(namespace.namespace) == made

    await secrets.remove(namespace.namespace, [])
    assert stored(namespace) is None
    await secrets.remove(namespace.namespace, [])
    again = await secrets.ensure(namespace.namespace)
    assert again is not None
    assert again.value != made.value


async def test_a_token_that_exists_is_kept(operator: KubernetesClient, namespace: Kubectl) -> None:
    namespace("create", "secret", "generic", SECRET, f"--from-literal={TOKEN_KEY}=chosen")

    found = await RaySecrets(operator, SETTINGS).ensure(namespace.namespace)

    assert found is not None
    assert found.value == "chosen"


WITH_REDIS = SETTINGS.model_copy(update={"redis_address": "redis:6379", "redis_password": SecretStr("one")})
ANOTHER_PASSWORD = WITH_REDIS.model_copy(update={"redis_password": SecretStr("two")})


def decoded(namespace: Kubectl) -> dict[str, str]:
    """The values of the Secret."""
    return {key: b64decode(value).decode() for key, value in (stored(namespace) or {}).items()}


@pytest.mark.parametrize("authentication", ["Token", "Disabled"])
async def test_the_password_of_the_redis_is_in_the_secret_of_each_namespace(
    operator: KubernetesClient, namespace: Kubectl, authentication: str
) -> None:
    settings = KubeRaySettings.model_validate({**WITH_REDIS.model_dump(), "authentication": authentication})
    token = await RaySecrets(operator, settings).ensure(namespace.namespace)

    assert decoded(namespace) == {PASSWORD_KEY: "one", **({TOKEN_KEY: token.value} if token else {})}
    assert (token is None) == (authentication == "Disabled")


async def test_a_changed_password_replaces_the_old_one_and_the_token_stays(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    token = await RaySecrets(operator, WITH_REDIS).ensure(namespace.namespace)
    await RaySecrets(operator, ANOTHER_PASSWORD).ensure(namespace.namespace)
    assert token is not None
    assert decoded(namespace) == {PASSWORD_KEY: "two", TOKEN_KEY: token.value}

    without = WITH_REDIS.model_copy(update={"authentication": RayAuthentication.DISABLED})
    await RaySecrets(operator, without).ensure(namespace.namespace)
    assert decoded(namespace) == {PASSWORD_KEY: "one", TOKEN_KEY: token.value}, "pods that still run have the token"


def older(values: Mapping[str, str], namespace: Kubectl, *ages: timedelta) -> dict[str, str]:
    """Values with a certificate that was renewed so long ago, for each age."""
    certificate: dict[str, str] = {}
    for age in ages:
        certificate = renewed(certificate, tls_name(namespace.namespace), datetime.now(UTC) - age)
    return {**values, **certificate}


async def test_the_certificate_is_in_the_secret_and_is_renewed(operator: KubernetesClient, namespace: Kubectl) -> None:
    settings = SETTINGS.model_copy(update={"transport_tls": True})

    async def after(values: Mapping[str, str]) -> dict[str, str]:
        """What an operator makes of these values."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": values}
        namespace.apply(secret)
        await RaySecrets(operator, settings).ensure(namespace.namespace)
        return decoded(namespace)

    token = await RaySecrets(operator, settings).ensure(namespace.namespace)
    made = decoded(namespace)
    assert set(made) == {TOKEN_KEY, AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE}
    assert token is not None
    assert made[TOKEN_KEY] == token.value
    assert await after(made) == made

    due = older(made, namespace, RENEWED_AFTER)
    prepared = await after(due)
    assert prepared[CERTIFICATE_FILE] == due[CERTIFICATE_FILE]
    assert prepared[AUTHORITIES_FILE].startswith(due[AUTHORITIES_FILE])
    assert set(prepared) == {*made, NEXT_CERTIFICATE, NEXT_KEY}

    waiting = older(made, namespace, RENEWED_AFTER + TRUSTED_BEFORE_USE, TRUSTED_BEFORE_USE)
    used = await after(waiting)
    assert used[CERTIFICATE_FILE] == waiting[NEXT_CERTIFICATE]
    assert used[TOKEN_KEY] == token.value
    assert used[AUTHORITIES_FILE] == waiting[AUTHORITIES_FILE]


async def test_the_proposed_command_replaces_a_certificate_whose_key_has_leaked(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    settings = SETTINGS.model_copy(update={"transport_tls": True})
    token = await RaySecrets(operator, settings).ensure(namespace.namespace)
    leaked = decoded(namespace)
    (command,) = pasted("docs/tasks/transport-tls.md")
    namespace.paste(command.replace("NAMESPACE", namespace.namespace))

    assert await RaySecrets(operator, settings).ensure(namespace.namespace) == token

    made = decoded(namespace)
    assert made.keys() == leaked.keys()
    assert made[KEY_FILE] != leaked[KEY_FILE]
    assert leaked[AUTHORITIES_FILE] not in made[AUTHORITIES_FILE]


async def test_a_secret_that_is_complete_is_not_written(operator: KubernetesClient, namespace: Kubectl) -> None:
    await RaySecrets(operator, WITH_REDIS).ensure(namespace.namespace)
    before = namespace.get("secret", SECRET)

    await RaySecrets(operator, WITH_REDIS).ensure(namespace.namespace)

    assert namespace.get("secret", SECRET) == before


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"authentication": "Disabled", "redisPassword": "one", "redisSecret": "ours"}, id="a named Secret"
        ),
        pytest.param({"authentication": "Disabled", "redisPassword": "one", "redisAddress": ""}, id="no Redis"),
        pytest.param({"authentication": "Disabled"}, id="no password"),
    ],
)
async def test_no_secret_is_made_if_nobody_reads_it(
    operator: KubernetesClient, namespace: Kubectl, settings: Json
) -> None:
    given = {"image": "x", "redisAddress": "redis:6379", **settings}
    await RaySecrets(operator, KubeRaySettings.model_validate(given)).ensure(namespace.namespace)
    assert stored(namespace) is None


async def test_the_secret_is_deleted_after_the_last_ray_cluster(operator: KubernetesClient, namespace: Kubectl) -> None:
    key = f"{namespace.namespace}/traffic"
    stage = stage_config("plan-1", 0, 1, session=key)
    unreachable = WITH_REDIS.model_copy(update={"dashboard_url": "http://127.0.0.1:9"})
    with kuberay_definitions(namespace, *KINDS):
        await RaySecrets(operator, unreachable).ensure(namespace.namespace)
        await RayServices(operator).apply(rayservice(namespace.namespace, [stage], [], None, unreachable, TOKEN))
        spec = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": []}}}}
        metadata = {"name": "one", "labels": LABELS, "finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"]}
        namespace.apply({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
        namespace("delete", "raycluster", "one", "--wait=false")
        engine = KubeRayEngine(operator, unreachable)

        while not await engine.remove(key):
            pass

        assert namespace.get("rayservice", "partita") is None
        assert decoded(namespace)[PASSWORD_KEY] == "one", "KubeRay needs it while it removes the cluster's state"
        namespace("patch", "raycluster", "one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        await eventually(lambda: stored(namespace), lambda found: found is None)
        await engine.close()


async def test_a_new_session_keeps_the_secret_of_the_ray_cluster_before(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    secrets = RaySecrets(operator, WITH_REDIS)
    with kuberay_definitions(namespace, *KINDS):
        token = await secrets.ensure(namespace.namespace)
        spec = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": []}}}}
        namespace.apply({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "one"}, "spec": spec})
        cluster = namespace.get("raycluster", "one")
        assert cluster is not None
        await secrets.remove(namespace.namespace, [cluster])
        owned = namespace.get("secret", SECRET)
        assert owned is not None
        assert [owner["uid"] for owner in owned["metadata"]["ownerReferences"]] == [cluster["metadata"]["uid"]]

        assert await secrets.ensure(namespace.namespace) == token

        kept = namespace.get("secret", SECRET)
        assert kept is not None
        assert "ownerReferences" not in kept["metadata"]
        assert kept["data"] == owned["data"]


async def test_the_name_limits_what_server_side_apply_may_create(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    namespace("create", "secret", "generic", "password", "--from-literal=password=hunter2")
    another = {"metadata": {"name": "another", "namespace": namespace.namespace}, "data": {}}

    for call in (
        operator.apply(SecretResource, another, force=True),
        operator.create(SecretResource, another),
        operator.get(SecretResource, "password", namespace.namespace),
        operator.list(SecretResource, namespace.namespace),
    ):
        with pytest.raises(ApiError, match="cannot"):
            await call


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({"authentication": "Disabled"}, None, id="no authentication"),
        pytest.param({"authSecret": "ours"}, RayToken("ours", None, generated=False), id="a Secret of its own"),
    ],
)
async def test_no_token_is_made_if_none_is_needed(
    operator: KubernetesClient, namespace: Kubectl, settings: Json, want: RayToken | None
) -> None:
    secrets = RaySecrets(operator, KubeRaySettings.model_validate({"image": "x", **settings}))

    assert await secrets.ensure(namespace.namespace) == want
    await secrets.remove(namespace.namespace, [])
    assert stored(namespace) is None


async def test_missing_definitions_are_named(operator: KubernetesClient, namespace: Kubectl) -> None:
    services = RayServices(operator)
    manifest = rayservice(namespace.namespace, [], [], None, SETTINGS, TOKEN)

    assert await services.get(namespace.namespace, "partita") is None
    with pytest.raises(EngineUnavailableError, match=r"has no RayServices .*Install KubeRay 1\.6 or newer"):
        await services.apply(manifest)


async def test_definitions_that_are_too_old_are_named_at_once(operator: KubernetesClient, namespace: Kubectl) -> None:
    old = copy.deepcopy(kuberay_crd("rayservices"))
    (version,) = [found for found in old["spec"]["versions"] if found["name"] == "v1"]
    cluster = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["rayClusterConfig"]
    del cluster["properties"]["authOptions"]["properties"]["secretName"]
    services = RayServices(operator)
    with kuberay_definitions(namespace, other=[old]):
        with pytest.raises(EngineUnavailableError, match=r"before 1\.6: it has no \S*authOptions\.secretName"):
            await services.apply(rayservice(namespace.namespace, [], [], None, SETTINGS, TOKEN))
        assert await services.apply(rayservice(namespace.namespace, [], [], None, SETTINGS)), "it needs no token"


async def test_the_proposed_command_replaces_a_ray_cluster_without_a_token(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    with kuberay_definitions(namespace, *KINDS):
        services = RayServices(operator)
        present = await services.apply(rayservice(namespace.namespace, [], [], None, SETTINGS))
        assert not authenticates(rayservice(namespace.namespace, [], [], present, SETTINGS, TOKEN))

        namespace.paste(REPLACE_FOR_TOKEN.format(namespace=namespace.namespace).rpartition(": ")[2])

        requested = await services.get(namespace.namespace, "partita")
        assert requested is not None
        assert REQUEST_ANNOTATION in requested["metadata"]["annotations"]
        stored = await services.apply(rayservice(namespace.namespace, [], [], requested, SETTINGS, TOKEN))
        assert authenticates(stored)


async def test_a_session_that_waits_for_replicas_names_the_pods_that_do_not_start(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    key, nowhere = f"{namespace.namespace}/traffic", "http://127.0.0.1:9"
    engine = KubeRayEngine(operator, SETTINGS.model_copy(update={"dashboard_url": nowhere, "serve_url": nowhere}))
    stage = stage_config("plan-1", 0, 1, session=key)
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    container = {"name": "ray-worker", "image": "registry/absent:1", "imageID": "", "restartCount": 0, "ready": False}
    with kuberay_definitions(namespace, *KINDS):
        await RayServices(operator).apply(rayservice(namespace.namespace, [stage], [], None, SETTINGS))
        told = {"status": {"pendingServiceStatus": {"rayClusterName": "partita-1"}}}
        namespace("patch", "rayservice", "partita", "--subresource=status", "--type=merge", "-p", json.dumps(told))
        namespace.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "worker", "labels": {"ray.io/cluster": "partita-1", "partita.dev/pool": "t4"}},
                "spec": {"containers": [{"name": "ray-worker", "image": "registry/absent:1"}]},
            }
        )
        pulling = {"status": {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}}
        namespace("patch", "pod", "worker", "--subresource=status", "--type=merge", "-p", json.dumps(pulling))

        status = await engine.observe(key)

        assert "Pods of pool t4 do not start: Image registry/absent:1 cannot be pulled" in status.summary
        assert "not found" in status.summary
    await engine.close()


def two_replicas(namespace: str) -> ServingSpec:
    app = application("traffic").model("a")
    session = app.session.model_copy(
        update={"metadata": app.session.metadata.model_copy(update={"namespace": namespace})}
    )
    pools = {
        name: pool.model_copy(update={"status": pool.status.model_copy(update={"capacity": 4})})
        for name, pool in app.pools.items()
    }
    targets = tuple(StageTarget("a", pipeline.name, 0, 2) for pipeline in app.plan.spec.modules[0].pipelines)
    return ServingSpec(session, app.plan, targets, app.profiles, pools)


async def test_a_group_with_two_pods_has_a_budget(operator: KubernetesClient, namespace: Kubectl) -> None:
    settings = KubeRaySettings(image="registry/serving:1", dashboard_url="http://127.0.0.1:9")
    spec = two_replicas(namespace.namespace)
    with kuberay_definitions(namespace, *KINDS):
        engine = KubeRayEngine(operator, settings)
        await engine.apply(spec)
        (group,) = {
            group["groupName"]
            for group in (namespace.get("rayservices", "partita") or {})["spec"]["rayClusterConfig"]["workerGroupSpecs"]
            if group["replicas"] == 2
        }
        serving = json.dumps({"status": {"activeServiceStatus": {"rayClusterName": "one"}}})
        namespace("patch", "rayservices", "partita", "--subresource=status", "--type=merge", "-p", serving)
        for name in ("a", "b"):
            metadata = {"name": name, "labels": {"ray.io/cluster": "one", "ray.io/group": group}}
            container = {"name": "c", "image": "registry/pause:1"}
            namespace.apply(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
            )

        await engine.apply(spec)

        (budget,) = namespace.list("poddisruptionbudgets")
        assert budget["metadata"]["name"] == f"partita-{group}"
        assert budget["spec"]["minAvailable"] == 1
        await engine.close()


async def test_a_ray_cluster_that_changes_meanwhile_is_read_and_scaled_again(
    operator: KubernetesClient, namespace: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, read, reads = two_replicas(namespace.namespace), RayServices.cluster, 0

    async def changed_after_the_first_reading(self: RayServices, *key: str) -> Json | None:
        nonlocal reads
        found, reads = await read(self, *key), reads + 1
        if reads == 1:
            namespace("annotate", "raycluster", "one", "changed=meanwhile")
        return found

    with kuberay_definitions(namespace, *KINDS):
        engine = KubeRayEngine(operator, SETTINGS.model_copy(update={"dashboard_url": "http://127.0.0.1:9"}))
        await engine.apply(spec)
        config = (namespace.get("rayservices", "partita") or {})["spec"]["rayClusterConfig"]
        needed = [group["replicas"] for group in config["workerGroupSpecs"]]
        unscaled = [{**group, **dict.fromkeys(NUMBERS, 0)} for group in config["workerGroupSpecs"]]
        cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "one"}}
        namespace.apply({**cluster, "spec": {**config, "workerGroupSpecs": unscaled}})
        serving = json.dumps({"status": {"activeServiceStatus": {"rayClusterName": "one"}}})
        namespace("patch", "rayservices", "partita", "--subresource=status", "--type=merge", "-p", serving)
        monkeypatch.setattr(RayServices, "cluster", changed_after_the_first_reading)

        await engine.apply(spec)

        scaled = (namespace.get("raycluster", "one") or {})["spec"]["workerGroupSpecs"]
        assert [group["replicas"] for group in scaled] == needed
        assert 2 in needed
        assert reads == 2
        await engine.close()


def with_template(spec: ServingSpec, template: PodTemplate) -> ServingSpec:
    session = spec.session.model_copy(update={"spec": spec.session.spec.model_copy(update={"pod_template": template})})
    return replace(spec, session=session, pools={name: session_pool(p, template) for name, p in spec.pools.items()})


async def test_groups_of_a_template_are_appended_without_a_change_of_the_present_pods(
    operator: KubernetesClient, namespace: Kubectl
) -> None:
    spec = two_replicas(namespace.namespace)

    def groups(kind: str, name: str) -> dict[str, int]:
        found = (namespace.get(kind, name) or {})["spec"]
        cluster = found.get("rayClusterConfig", found)
        return {group["groupName"]: group["replicas"] for group in cluster["workerGroupSpecs"]}

    def ray_cluster(pods: dict[str, int]) -> None:
        """What KubeRay makes of the RayService, with other numbers of pods."""
        config = (namespace.get("rayservices", "partita") or {})["spec"]["rayClusterConfig"]
        made = [{**group, **dict.fromkeys(NUMBERS, pods[group["groupName"]])} for group in config["workerGroupSpecs"]]
        document = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "one"}}
        namespace.apply({**document, "spec": {**config, "workerGroupSpecs": made}})

    with kuberay_definitions(namespace, *KINDS):
        engine = KubeRayEngine(operator, KubeRaySettings(image="x", dashboard_url="http://127.0.0.1:9"))
        await engine.apply(spec)
        before = groups("rayservices", "partita")
        assert sorted(count for count in before.values() if count) == [1, 2], "frontends and workers"
        # The autoscaler has not removed a third worker yet.
        present = {name: 3 if count == 2 else count for name, count in before.items()}
        ray_cluster(present)
        serving = json.dumps({"status": {"activeServiceStatus": {"rayClusterName": "one"}}})
        namespace("patch", "rayservices", "partita", "--subresource=status", "--type=merge", "-p", serving)

        moved = with_template(spec, PodTemplate(node_selector={"disk": "ssd"}))
        await engine.apply(moved)
        first = groups("rayservices", "partita")
        new = dict.fromkeys(first.keys() - before.keys(), 0)
        assert len(new) == len(before)
        assert first == {**present, **new}

        ray_cluster(first)
        await engine.apply(moved)
        then, live = groups("rayservices", "partita"), groups("rayclusters", "one")
        assert sorted(then[name] for name in new if then[name]) == [1, 2]
        assert {name: live[name] for name in before} == present, "only the autoscaler removes pods"
        assert [live[name] for name in new if live[name]] == [1], (
            "workers wait for the accelerators of the present ones"
        )
        await engine.close()
