"""The Job of a profiling run: its placement, its rights, its end."""

import json
from typing import Any

import pytest
from tests.builders import pool
from tests.operator.profiling.requests import quick

from partita_api.fields.label_selector import LabelSelector
from partita_api.gpupool import Emulation, GPUPool, LatencyCurve
from partita_api.pod.template import PodTemplate
from partita_api.pool.devices import Devices
from partita_api.profile import ProfileRequest
from partita_operator.profiling.kubernetes_job_manifest import job_manifest
from partita_operator.settings.model import ProfilingSettings
from partita_runtime.models.policy import VARIABLE, ModelPolicy

SETTINGS = ProfilingSettings(timeout_seconds=900, memory_limit="2Gi", storage_limit="3Gi")
BOUNDS = {"memory": "2Gi", "ephemeral-storage": "3Gi"}
GPUS = pool("t4").on_nodes({"nvidia.com/gpu.product": "Tesla-T4"}).build()
UNLABELLED = pool("plain").build()
MIG = pool("slices").with_spec(resource_name="nvidia.com/mig-1g.5gb").build()
EMULATED = (
    pool("ghost")
    .with_spec(emulation=Emulation(curves=(LatencyCurve(model="*", alpha_micros=1, beta_micros=1),)))
    .build()
)
CLAIMED = pool("claimed").with_spec(devices=Devices(device_class_name="gpu.nvidia.com")).build()


def manifest(of: GPUPool) -> dict[str, Any]:
    return job_manifest("vision", quick(of.metadata.name), of, 2, image="registry/profiler:1", settings=SETTINGS)


def pod(of: GPUPool) -> dict[str, Any]:
    spec: dict[str, Any] = manifest(of)["spec"]["template"]["spec"]
    return spec


def container(of: GPUPool) -> dict[str, Any]:
    (only,) = pod(of)["containers"]
    assert isinstance(only, dict)
    return only


def test_its_name_contains_key_and_attempt() -> None:
    metadata = manifest(GPUS)["metadata"]
    assert metadata["name"] == f"partita-profile-{quick('t4').key}-2"
    assert metadata["namespace"] == "vision"
    assert metadata["labels"]["partita.dev/profile"] == quick("t4").key


def test_it_has_a_time_limit_and_no_retries() -> None:
    spec = manifest(GPUS)["spec"]
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (900, 0)
    assert spec["ttlSecondsAfterFinished"] > 0
    assert pod(GPUS)["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("of", "want_selector", "want_limits"),
    [
        pytest.param(GPUS, {"nvidia.com/gpu.product": "Tesla-T4"}, {"nvidia.com/gpu": "1"}, id="by labels"),
        pytest.param(UNLABELLED, {"partita.dev/pool": "plain"}, {"nvidia.com/gpu": "1"}, id="by the pool's name"),
        pytest.param(MIG, {"partita.dev/pool": "slices"}, {"nvidia.com/mig-1g.5gb": "1"}, id="a MIG slice"),
        pytest.param(EMULATED, None, {}, id="emulated: anywhere"),
    ],
)
def test_it_runs_on_one_accelerator_of_its_class(
    of: GPUPool, want_selector: dict[str, str] | None, want_limits: dict[str, str]
) -> None:
    assert pod(of).get("nodeSelector") == want_selector
    assert container(of)["resources"]["limits"] == {**BOUNDS, **want_limits}
    tolerated = [toleration["key"] for toleration in pod(of).get("tolerations", [])]
    assert tolerated == list(want_limits)


def test_expressions_of_the_selector_become_node_affinity() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    selector = LabelSelector.model_validate({"matchExpressions": [expression]})
    of = pod(pool("t4").with_spec(node_selector=selector).build())
    assert "nodeSelector" not in of
    (term,) = of["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert expression in term["matchExpressions"]


def test_it_is_not_placed_on_nodes_that_wait_to_be_cut() -> None:
    required = pod(GPUS)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "partita.dev/mig-draining", "operator": "DoesNotExist"}]
    assert "affinity" not in pod(EMULATED)


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pool("shared").mps(4).build(), ["nvidia-cuda-mps-control", "-d"], id="MPS"),
        pytest.param(pool("ghost").mps(4).with_spec(emulation=EMULATED.spec.emulation).build(), None, id="emulated"),
        pytest.param(MIG, None, id="MIG"),
        pytest.param(GPUS, None, id="whole"),
    ],
)
def test_mps_runs_beside_the_profiler_if_gpus_are_divided(of: GPUPool, want: list[str] | None) -> None:
    only = container(of)
    started = only.get("lifecycle", {}).get("postStart", {}).get("exec", {}).get("command")
    assert started == want
    directories = {v["value"] for v in only["env"] if v["name"].startswith("CUDA_MPS_")}
    assert all(directory.startswith(only["volumeMounts"][0]["mountPath"]) for directory in directories)
    assert bool(directories) == (want is not None)


def test_it_has_no_rights_except_to_compute() -> None:
    """The restricted Pod Security Standard, and no access to the API server."""
    spec, only = pod(GPUS), container(GPUS)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_its_model_cannot_take_all_memory_and_disk_of_the_node() -> None:
    resources = container(GPUS)["resources"]
    assert BOUNDS.items() <= resources["limits"].items()
    assert resources["requests"] == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "0"}, "it needs no such node"
    assert pod(GPUS)["volumes"] == [{"name": "scratch", "emptyDir": {"sizeLimit": "3Gi"}}]


def test_a_pods_template_may_give_it_more_memory() -> None:
    large = PodTemplate.model_validate({"resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "96Gi"}}})
    resources = container(pool("t4").with_spec(pod_template=large).build())["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("8Gi", "96Gi")
    assert resources["limits"]["ephemeral-storage"] == "3Gi"


def test_it_gets_its_request() -> None:
    variables = {variable["name"]: variable["value"] for variable in container(GPUS)["env"]}
    assert ProfileRequest.model_validate(json.loads(variables["PARTITA_PROFILE_REQUEST"])) == quick("t4")
    assert container(GPUS)["image"] == "registry/profiler:1"
    assert container(GPUS)["command"] == ["python", "-m", "partita_profiling"]


def test_the_run_gets_the_model_policy_if_there_is_one() -> None:
    def variables(policy: ModelPolicy) -> dict[str, str]:
        made = job_manifest("vision", quick("t4"), GPUS, 1, image="x", settings=SETTINGS, policy=policy)
        (only,) = made["spec"]["template"]["spec"]["containers"]
        return {variable["name"]: variable["value"] for variable in only["env"]}

    assert json.loads(variables(ModelPolicy(modules=("traffic",)))[VARIABLE]) == {"modules": ["traffic"]}
    assert VARIABLE not in variables(ModelPolicy())


def test_a_device_is_claimed_instead_of_a_resource() -> None:
    resources = container(CLAIMED)["resources"]

    (claim,) = pod(CLAIMED)["resourceClaims"]
    assert claim["resourceClaimTemplateName"].startswith("partita-claimed-")
    assert resources["claims"] == [{"name": claim["name"]}]
    assert resources["limits"] == BOUNDS
    assert "nodeSelector" not in pod(CLAIMED)  # the claim decides where the pod runs
