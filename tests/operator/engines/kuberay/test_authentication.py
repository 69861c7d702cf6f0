"""Ray's token in the RayService: on by default, without replacing a Ray cluster that serves without one.

And the certificate of its pods, off by default.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.builders import pool
from tests.operator.engines.kuberay.kuberay_crds import complaints
from tests.operator.engines.serve_model import stage_config

from partita_api.pod.template import PodTemplate
from partita_operator.engines.kuberay.authentication import (
    DIGEST_ANNOTATION,
    REQUEST_ANNOTATION,
    SECRET,
    RayToken,
    has_token,
    tls_files,
)
from partita_operator.engines.kuberay.comparison import is_replaced
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.worker_groups import frontend_group, pool_group
from partita_operator.pod_templates.frontend_pods import FrontendPods
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, TlsFiles

Json = dict[str, Any]
SETTINGS = KubeRaySettings(image="registry/serving:1")
NEXT_IMAGE = KubeRaySettings(image="registry/serving:2")
GENERATED = RayToken(SECRET, "one", generated=True)
ANOTHER = RayToken(SECRET, "two", generated=True)
NAMED = RayToken("ours", None, generated=False)
T4, L4 = pool("t4").build(), pool("l4").build()
TOKEN = {"mode": "token", "secretName": SECRET}


def manifest(
    token: RayToken | None,
    present: Json | None = None,
    settings: KubeRaySettings = SETTINGS,
    replicas: int = 1,
    also: bool = False,
) -> Json:
    """The RayService of a stage on one pool; `also` adds the group of another pool."""
    pools = [T4, L4] if also else [T4]
    stage = stage_config("plan-1", 0, replicas, pool=T4.ray_resource)
    return rayservice("vision", [stage], [pool_group(p, settings, 8) for p in pools], present, settings, token)


def cluster(rayservice: Json) -> Json:
    found: Json = rayservice["spec"]["rayClusterConfig"]
    return found


WITHOUT = manifest(None)
REQUESTED = {**WITHOUT, "metadata": {**WITHOUT["metadata"], "annotations": {REQUEST_ANNOTATION: "now"}}}
WITH = manifest(GENERATED)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(WITH, TOKEN, id="a new Ray cluster"),
        pytest.param(manifest(NAMED), {"mode": "token", "secretName": "ours"}, id="a new one with a Secret of its own"),
        pytest.param(WITHOUT, None, id="a new one without authentication"),
        pytest.param(manifest(GENERATED, WITHOUT), None, id="one that serves without"),
        pytest.param(manifest(GENERATED, WITHOUT, replicas=3), None, id="one without, scaled"),
        pytest.param(manifest(GENERATED, WITHOUT, also=True), None, id="one without, with a further group"),
        pytest.param(manifest(GENERATED, REQUESTED), TOKEN, id="one without, on request"),
        pytest.param(manifest(GENERATED, WITHOUT, NEXT_IMAGE), TOKEN, id="one without, replaced anyway"),
        pytest.param(
            manifest(NAMED, WITHOUT), {"mode": "token", "secretName": "ours"}, id="one without, by an explicit setting"
        ),
        pytest.param(manifest(GENERATED, WITH, replicas=3), TOKEN, id="one with it stays so"),
        pytest.param(manifest(None, WITH), {"mode": "disabled"}, id="switched off"),
        pytest.param(manifest(GENERATED, manifest(None, WITH)), TOKEN, id="switched on again"),
    ],
)
def test_a_ray_cluster_has_the_token(made: Json, want: Json | None) -> None:
    assert cluster(made).get("authOptions") == want
    assert complaints("rayservices", made) == []


def test_kuberay_gets_the_version_that_it_asks_for_with_a_token() -> None:
    assert cluster(WITH)["rayVersion"] == "2.60.0"
    of_the_settings = SETTINGS.model_copy(update={"ray_version": "2.61.1"})
    assert cluster(manifest(GENERATED, settings=of_the_settings))["rayVersion"] == "2.61.1"
    assert "rayVersion" not in cluster(WITHOUT)


def test_another_token_makes_another_head_and_thus_another_ray_cluster() -> None:
    def annotations(rayservice: Json) -> Json:
        found: Json = cluster(rayservice)["headGroupSpec"]["template"]["metadata"].get("annotations", {})
        return found

    replaced = manifest(ANOTHER, WITH)
    assert annotations(WITH)[DIGEST_ANNOTATION] != annotations(replaced)[DIGEST_ANNOTATION]
    assert annotations(manifest(NAMED)) == annotations(WITHOUT) == {}
    assert has_token(WITH, GENERATED)
    assert not has_token(WITH, ANOTHER)
    assert not has_token(WITHOUT, GENERATED)
    assert not has_token(WITH, None)
    assert has_token(manifest(NAMED), NAMED)


def test_no_token_is_shown() -> None:
    secret = "hunter2"
    token = RayToken(SECRET, secret, generated=True)
    assert secret not in repr(token) + repr(manifest(token))


TLS = SETTINGS.model_copy(update={"transport_tls": True})
OF_PLATFORM = TLS.model_copy(update={"transport_tls_secret": "ours"})
OF_SESSION = PodTemplate.model_validate(
    {
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    }
)


def pods_of(settings: KubeRaySettings, present: Json | None = None, of: Any = T4) -> Json:
    groups = [frontend_group(settings, FrontendPods(OF_SESSION)), pool_group(of, settings, 8)]
    return rayservice("vision", [stage_config("plan-1", 0, 1, pool=of.ray_resource)], groups, present, settings)


def secrets(rayservice: Json) -> list[str | None]:
    """The Secret that the pods of each group have at the place of the certificate; the head's is the first."""
    groups = [cluster(rayservice)["headGroupSpec"], *cluster(rayservice)["workerGroupSpecs"]]
    return [_secret(group["template"]["spec"]) for group in groups]


def _secret(pod: Json) -> str | None:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in pod["containers"][0]["volumeMounts"]:
        if mount["mountPath"] == "/etc/partita/transport":
            assert mount["readOnly"]
            secret = volumes[mount["name"]]["secret"]
            assert {item["path"] for item in secret["items"]} == {AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE}
            return str(secret["secretName"])
    return None


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(lambda: pods_of(SETTINGS), [None] * 4, id="off"),
        pytest.param(lambda: pods_of(TLS), [None, SECRET, SECRET, SECRET], id="on"),
        pytest.param(lambda: pods_of(OF_PLATFORM), [None, "ours", "ours", "ours"], id="a Secret of the platform"),
        pytest.param(lambda: pods_of(TLS, pods_of(SETTINGS)), [None, SECRET, SECRET, SECRET], id="switched on"),
        pytest.param(lambda: pods_of(OF_PLATFORM, pods_of(TLS)), [None, "ours", "ours", "ours"], id="another Secret"),
        pytest.param(lambda: pods_of(SETTINGS, pods_of(TLS)), [None] * 4, id="switched off"),
        pytest.param(
            lambda: pods_of(TLS, pods_of(SETTINGS), L4),
            [None, SECRET, SECRET, SECRET],
            id="switched on by a session of another pool",
        ),
    ],
)
def test_pods_of_frontends_and_replicas_have_the_certificate(made: Callable[[], Json], want: list[str | None]) -> None:
    assert secrets(made()) == want
    assert complaints("rayservices", made()) == []


def test_a_ray_cluster_is_replaced_by_a_change_of_the_setting_and_by_nothing_else() -> None:
    on, off = pods_of(TLS), pods_of(SETTINGS)
    assert is_replaced(cluster(off), cluster(pods_of(TLS, off)))
    assert is_replaced(cluster(on), cluster(pods_of(SETTINGS, on)))
    assert not is_replaced(cluster(on), cluster(pods_of(TLS, on)))


def test_processes_find_the_certificate_of_their_namespace() -> None:
    assert tls_files("vision", SETTINGS) is None
    assert tls_files("vision", TLS) == TlsFiles(directory="/etc/partita/transport", name="partita-ray.vision")
