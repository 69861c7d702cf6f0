"""A pool's pod template on the pods of Partita: what it adds, what it replaces, and what stays."""

from typing import Any

import pytest
import yaml
from tests.builders import PoolBuilder, pool
from tests.crds.pod_templates import EVERYTHING
from tests.operator.engines.kuberay.kuberay_crds import complaints
from tests.operator.kubectl import Kubectl, cluster_with_crds
from tests.operator.profiling.requests import quick

from partita_api.digests import digest
from partita_api.gpupool import GPUPool
from partita_api.pod.template import PodTemplate
from partita_api.pool.devices import Devices
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.worker_groups import pool_group
from partita_operator.pod_templates.manifest import with_template
from partita_operator.profiling.kubernetes_job_manifest import job_manifest
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import ProfilingSettings

cluster = cluster_with_crds

Json = dict[str, Any]
SETTINGS = KubeRaySettings.model_validate(
    {
        "image": "registry/serving:1",
        "imagePullSecrets": ["default-registry"],
        "workers": {"nodeSelector": {"arch": "amd64"}, "tolerations": [{"key": "ray", "operator": "Exists"}]},
    }
)
DISK = {"ephemeral-storage": "0"}
MOST_DISK = {"ephemeral-storage": "32Gi"}
T4 = pool("t4").on_nodes({"nvidia.com/gpu.product": "Tesla-T4"})


def templated(builder: PoolBuilder, template: Json) -> GPUPool:
    return builder.with_spec(pod_template=PodTemplate.model_validate(template)).build()


def job(of: GPUPool) -> Json:
    return job_manifest(
        "vision", quick(of.metadata.name), of, 1, image="registry/profiler:1", settings=ProfilingSettings()
    )


def profiling_pod(of: GPUPool) -> Json:
    found: Json = job(of)["spec"]["template"]
    return found


def worker_pod(of: GPUPool) -> Json:
    found: Json = pool_group(of, SETTINGS, 1)["template"]
    return found


PODS = [pytest.param(profiling_pod, id="profiling Job"), pytest.param(worker_pod, id="worker of KubeRay")]


def container(pod: Json) -> Json:
    (only,) = pod["spec"]["containers"]
    found: Json = only
    return found


@pytest.mark.parametrize("of", PODS)
def test_a_template_with_every_field_is_on_the_pod_beside_what_partita_needs(of: Any) -> None:
    before, after = of(T4.build()), of(templated(T4, EVERYTHING))

    assert after["metadata"]["labels"] == {**before["metadata"]["labels"], **EVERYTHING["metadata"]["labels"]}
    assert after["metadata"]["annotations"] == EVERYTHING["metadata"]["annotations"]
    for field in ("serviceAccountName", "topologySpreadConstraints", "priorityClassName", "schedulerName"):
        assert after["spec"][field] == EVERYTHING[field]
    for field in ("imagePullSecrets", "tolerations", "volumes"):
        assert after["spec"][field] == [*before["spec"].get(field, []), *EVERYTHING[field]]
    for field in ("env", "volumeMounts"):
        assert container(after)[field] == [*container(before)[field], *EVERYTHING[field]]
    assert container(after)["envFrom"] == EVERYTHING["envFrom"]
    assert container(after)["image"] == EVERYTHING["image"]
    assert after["spec"]["nodeSelector"] == {**before["spec"]["nodeSelector"], "disk": "ssd"}
    assert after["spec"]["securityContext"] == {**before["spec"]["securityContext"], **EVERYTHING["securityContext"]}
    assert container(after)["resources"]["limits"] == {
        "nvidia.com/gpu": "1",
        **EVERYTHING["resources"]["limits"],
    }


@pytest.mark.parametrize("of", PODS)
def test_a_template_keeps_the_pod_restricted_and_without_a_token(of: Any) -> None:
    pod = of(templated(T4, EVERYTHING))

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container(pod)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("of", PODS)
def test_a_pod_stays_on_the_nodes_of_its_pool(of: Any) -> None:
    pod = of(templated(T4, {"affinity": EVERYTHING["affinity"]}))

    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert [expression["key"] for expression in term["matchExpressions"]] == ["partita.dev/mig-draining", "zone"]
    assert pod["spec"]["affinity"]["podAntiAffinity"] == EVERYTHING["affinity"]["podAntiAffinity"]


def test_each_of_several_terms_of_a_template_also_needs_the_nodes_of_the_pool() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    pod = worker_pod(templated(T4, {"affinity": affinity}))

    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [[expression["key"] for expression in term["matchExpressions"]] for term in required["nodeSelectorTerms"]]
    assert keys == [["partita.dev/mig-draining", "zone"]] * 2


@pytest.mark.parametrize(
    ("template", "want"),
    [
        pytest.param(
            {"requests": {"memory": "8Gi"}},
            {"requests": {"cpu": "1", "memory": "8Gi", **DISK}, "limits": {"nvidia.com/gpu": "1", **MOST_DISK}},
            id="a request",
        ),
        pytest.param(
            {"limits": {"memory": "512Mi"}},
            {"requests": {"cpu": "1", **DISK}, "limits": {"nvidia.com/gpu": "1", "memory": "512Mi", **MOST_DISK}},
            id="a limit below the default request takes its place",
        ),
    ],
)
def test_a_template_replaces_request_and_limit_of_the_resources_that_it_names(template: Json, want: Json) -> None:
    assert container(profiling_pod(templated(T4, {"resources": template})))["resources"] == want


def test_a_claimed_device_stays_claimed() -> None:
    claimed = pool("claimed").with_spec(devices=Devices(device_class_name="gpu.nvidia.com"))

    resources = container(worker_pod(templated(claimed, EVERYTHING)))["resources"]

    assert resources["claims"] == container(worker_pod(claimed.build()))["resources"]["claims"]


def test_a_queue_of_kueue_is_on_the_job_itself() -> None:
    assert job(templated(T4, EVERYTHING))["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_kuberays_schema_knows_every_field_of_a_template() -> None:
    group = pool_group(templated(T4, EVERYTHING), SETTINGS, 1)

    assert complaints("rayservices", rayservice("vision", [], [group], None, SETTINGS)) == []


@pytest.mark.apiserver
@pytest.mark.parametrize("of", PODS)
def test_the_api_server_knows_every_field_of_a_template(cluster: Kubectl, of: Any) -> None:
    """As a Job, whose pods the API server validates without their ServiceAccount and PriorityClass."""
    made = job(T4.build())
    pod = of(templated(T4, EVERYTHING))
    pod["spec"]["restartPolicy"] = "Never"
    document = {**made, "metadata": {"name": "templated"}, "spec": {**made["spec"], "template": pod}}

    said = cluster("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(document))

    assert said.strip() == "job.batch/templated created (server dry run)"


def test_a_pool_without_a_template_has_pods_without_one() -> None:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    assert with_template(own, PodTemplate()) == own


def test_pods_and_profiles_without_a_template_are_those_of_before_templates_existed() -> None:
    """Another digest means that an upgrade of Partita replaces all Ray clusters, or profiles all models again."""
    assert digest(pool_group(T4.build(), KubeRaySettings(image="registry/serving:1"), 1)) == "d847fd6e9a8f7bf5"
    assert quick("t4").key == "e97281ca3d4a872b"
