"""Pods of frontends with containers for functions of other images, and the frontend that waits for such a pod."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders import SessionBuilder, session
from tests.crds.pod_templates import EVERYTHING
from tests.operator.engines.kuberay.kuberay_crds import complaints

from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import template_digest
from partita_api.session.module import FunctionSource, Module
from partita_api.session.request_log import RequestLog, SinkAuthorization
from partita_operator.engines.kuberay.authentication import RayToken
from partita_operator.engines.kuberay.pod_remarks import missing_frontend_pod
from partita_operator.engines.kuberay.rayservice_manifest import rayservice, worker_groups
from partita_operator.engines.kuberay.worker_groups import frontend_group
from partita_operator.kube.rayservices import GROUP_LABEL
from partita_operator.pod_templates.frontend_pods import NOTHING_ADDED, FrontendPods
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.deploy.function_containers import function_container

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = KubeRaySettings(image="registry/serving:1", transport_tls=True)
CROP, READ = "registry/crop:1", "registry/read:2"
SSD = PodTemplate(node_selector={"disk": "ssd"})


def function(name: str, image: str | None = None, **resources: str) -> Module:
    source = {"entrypoint": f"shop:{name}", "image": image, "resources": resources or None}
    return Module(name=name, function=FunctionSource.model_validate(source))


def frontends(*functions: Module, template: PodTemplate | None = None, log: RequestLog | None = None) -> FrontendPods:
    made: SessionBuilder = session("traffic").model("detector")
    modules = (*made.build().spec.modules, *functions)
    return FrontendPods.of(made.with_spec(modules=modules, pod_template=template).build().spec, log)


def pod(of: FrontendPods) -> Json:
    token = RayToken("partita-ray", "auth_token", "secret")
    made = rayservice("vision", [], [frontend_group(SETTINGS, of)], None, SETTINGS, token)
    assert complaints("rayservices", made) == []
    return worker_groups(made)[-1]["template"]


def sidecars(of: FrontendPods) -> dict[str, Json]:
    return {container["image"]: container for container in pod(of)["spec"]["initContainers"][1:]}


def test_a_container_for_each_image_runs_beside_the_frontend() -> None:
    functions = (function("crop", CROP), function("read", READ), function("crop2", CROP), function("own"))
    spec = pod(frontends(*functions))["spec"]

    program, *others = spec["initContainers"]
    (frontend,) = spec["containers"]
    assert [container["image"] for container in (program, *others)] == [SETTINGS.image, CROP, READ]
    assert {"name": "PARTITA_FUNCTIONS", "value": "/etc/partita/functions"} in frontend["env"]
    for container in others:
        name = function_container(container["image"])
        assert container["name"] == name
        assert container["restartPolicy"] == "Always", "it starts before the frontend, and ends after it"
        assert container["command"] == ["python3", "/etc/partita/functions", f"/etc/partita/functions/{name}.sock"]
        assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {"/tmp": name, "/etc/partita/functions": "function-server"}
    for container in (program, frontend):
        assert {"name": "function-server", "mountPath": "/etc/partita/functions"} in container["volumeMounts"]
    empty = [volume["name"] for volume in spec["volumes"] if volume.get("emptyDir") == {}]
    assert {"function-server", function_container(CROP), function_container(READ)} < {*empty}


def test_the_containers_are_restricted_and_do_not_see_the_files_of_ray() -> None:
    spec = pod(frontends(function("crop", CROP)))["spec"]
    assert spec["automountServiceAccountToken"] is False
    for container in spec["initContainers"]:
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["capabilities"]) == (True, {"drop": ["ALL"]})
        assert not [variable for variable in container.get("env", ()) if "RAY" in variable["name"]]
        assert not [mount for mount in container["volumeMounts"] if mount["name"] in ("scratch", "transport-tls")]
    (frontend,) = spec["containers"]
    assert {"scratch", "transport-tls"} <= {mount["name"] for mount in frontend["volumeMounts"]}


def test_they_have_the_variables_and_volumes_of_the_pod_template_and_their_own_image() -> None:
    template = PodTemplate.model_validate(EVERYTHING)
    pods = frontends(function("crop", CROP), template=template)
    (container,) = sidecars(pods).values()

    assert pod(pods)["spec"]["initContainers"][0]["image"] == EVERYTHING["image"], "the frontend's, which has Partita"
    assert container["env"][1:] == EVERYTHING["env"]
    assert container["envFrom"] == EVERYTHING["envFrom"]
    assert container["volumeMounts"][2:] == EVERYTHING["volumeMounts"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}, "those of the template are the frontend's"


def test_only_the_frontend_has_the_credentials_of_the_sink() -> None:
    log = RequestLog(sink="http://sink/", authorization=SinkAuthorization(secret_name="collector"))
    both = frontends(function("crop", CROP), template=SSD, log=log)
    spec = pod(both)["spec"]

    def mounting(containers: list[Json]) -> list[str]:
        return [c["name"] for c in containers if "request-log" in [mount["name"] for mount in c["volumeMounts"]]]

    assert spec["nodeSelector"] == SSD.node_selector
    assert (mounting(spec["containers"]), mounting(spec["initContainers"])) == (["ray-worker"], [])
    assert "request-log" in [volume["name"] for volume in spec["volumes"]]
    parts = [frontends(function("crop", CROP), template=SSD), frontends(template=SSD, log=log)]
    assert len({both.digest, *(part.digest for part in parts)}) == len(parts) + 1


def test_functions_of_one_image_have_the_largest_amounts() -> None:
    pods = frontends(function("a", CROP, cpu="500m", memory="4Gi"), function("b", CROP, cpu="2"), function("c", CROP))
    (container,) = sidecars(pods).values()
    assert container["resources"] == {"requests": (want := {"cpu": "2", "memory": "4Gi"}), "limits": want}


def test_other_pods_are_others_and_those_without_images_stay_as_they_were() -> None:
    assert frontends() == NOTHING_ADDED
    assert frontends(function("own")).digest == ""
    assert frontends(template=SSD).digest == template_digest(SSD)
    of_images = [
        frontends(function("crop", CROP)),
        frontends(function("crop", READ)),
        frontends(function("crop", CROP, cpu="2")),
        frontends(function("crop", CROP), template=SSD),
    ]
    assert len({*(pods.digest for pods in of_images), "", template_digest(SSD)}) == len(of_images) + 2
    before = frontends(function("crop", CROP), function("read", READ))
    assert frontends(function("read", READ), function("c", CROP)).digest == before.digest, "they share pods"


@pytest.mark.parametrize(
    ("ready", "reason", "want"),
    [
        pytest.param(None, "", "It starts", id="no pod yet"),
        pytest.param("False", "", "It starts", id="a pod that starts"),
        pytest.param("False", "ImagePullBackOff", f"Image {CROP} cannot be pulled", id="a wrong image"),
        pytest.param("True", "", "", id="a pod that runs"),
    ],
)
def test_the_frontend_waits_for_a_pod_with_its_containers(ready: str | None, reason: str, want: str) -> None:
    group = frontend_group(SETTINGS, frontends(function("crop", CROP)))
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "initContainerStatuses": [{"name": function_container(CROP), "image": CROP, "state": state}],
    }
    common = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    own = {"metadata": {"labels": {GROUP_LABEL: group["groupName"]}}, "status": status}
    found = missing_frontend_pod(group["groupName"], [common, own] if ready else [common], NOW)
    assert found.startswith(want)
    assert bool(found) == bool(want)
