"""Ray's token in the RayService: on by default, without replacing a Ray cluster that serves without one."""

from typing import Any

import pytest
from tests.builders import pool
from tests.operator.engines.kuberay.kuberay_crds import complaints
from tests.operator.engines.serve_model import stage_config

from partita_operator.engines.kuberay.authentication import (
    DIGEST_ANNOTATION,
    REQUEST_ANNOTATION,
    SECRET,
    RayToken,
    has_token,
)
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.worker_groups import pool_group
from partita_operator.settings.kuberay import KubeRaySettings

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
