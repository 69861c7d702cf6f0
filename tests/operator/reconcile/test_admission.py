"""Which manifests the admission webhook refuses, and its messages."""

from typing import Any

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.label_selector import LabelSelector
from partita_api.gpupool import GPUPool, GPUPoolSpec, Quota
from partita_api.inferencesession import EngineType, Objective, ObjectiveType
from partita_api.pod.template import PodTemplate
from partita_api.session.clients import ApiKeys, Clients, Jwt
from partita_operator.reconcile.admission import judge_pool, judge_session
from partita_operator.settings.clients import ClientSettings, Required
from partita_operator.settings.exposure import ExposureSettings
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import ModelsSettings, OperatorSettings

TRAFFIC = session("traffic").model("detector")
KUBERAY = OperatorSettings(default_engine=EngineType.KUBERAY, kuberay=KubeRaySettings(image="registry/serving:1"))
L4 = LabelSelector(match_labels={"gpu": "l4"})


def cluster(*pools: GPUPool) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(*(pools or (pool("fast").build(), pool("slow").build())))
    made.run(2)
    return made


@pytest.mark.parametrize(
    ("builder", "want"),
    [
        pytest.param(TRAFFIC, "", id="nothing wrong"),
        pytest.param(TRAFFIC.with_spec(pools=("fats",)), "fats, but the cluster has no GPUPool of this", id="pool"),
        pytest.param(
            TRAFFIC.with_spec(pool_selector={"match_labels": {"tier": "gold"}}),
            "No GPUPool has the labels tier=gold",
            id="labels",
        ),
        pytest.param(
            TRAFFIC.model("other").edge("detector", "other").edge("other", "detector"), "InvalidSpec", id="cycle"
        ),
        pytest.param(SessionBuilder("a" * 60).model("detector"), "at most 54 characters", id="name of plans too long"),
        pytest.param(
            TRAFFIC.with_spec(objective=Objective(type=ObjectiveType.POWER)), "spec.powerWatts", id="power unknown"
        ),
    ],
)
def test_sessions(builder: SessionBuilder, want: str) -> None:
    verdict = judge_session(builder.build(), "", cluster().cluster(), OperatorSettings())
    assert want in verdict.refusal
    assert bool(verdict.refusal) == bool(want)


def test_a_forbidden_model_is_refused() -> None:
    settings = OperatorSettings(models=ModelsSettings(allowed_modules=("traffic",)))
    verdict = judge_session(TRAFFIC.build(), "", cluster().cluster(), settings)
    assert verdict.refusal.startswith("ForbiddenModel: ")


def test_a_forbidden_pod_template_is_refused() -> None:
    template = PodTemplate(service_account_name="admin")
    verdict = judge_session(TRAFFIC.with_spec(pod_template=template).build(), "", cluster().cluster(), KUBERAY)
    assert verdict.refusal.startswith("ForbiddenPodTemplate: spec.podTemplate.serviceAccountName names admin")


def test_refusals_of_sessions_name_no_pool_that_the_session_does_not() -> None:
    present = cluster(pool("secret-a").build(), pool("secret-b").build()).cluster()
    for builder in (TRAFFIC.with_spec(pools=("fats",)), TRAFFIC.with_spec(pool_selector={"match_labels": {"a": "b"}})):
        refusal = judge_session(builder.build(), "", present, OperatorSettings()).refusal
        assert refusal
        assert "secret" not in refusal


KEYS = Clients(api_keys=ApiKeys(secret_name="partita-clients"))


@pytest.mark.parametrize(
    ("clients", "settings", "want"),
    [
        pytest.param(None, ClientSettings(), "", id="not required"),
        pytest.param(None, ClientSettings(required=Required.EXPOSED), "", id="required of public addresses"),
        pytest.param(None, ClientSettings(required=Required.ALWAYS), "AuthenticationRequired: ", id="required of all"),
        pytest.param(KEYS, ClientSettings(required=Required.ALWAYS), "", id="API keys"),
        pytest.param(KEYS, ClientSettings(allowed_secrets=()), "ForbiddenClients: ", id="a Secret"),
        pytest.param(
            Clients(jwt=Jwt(issuer="https://login.example.com", audiences=("partita",))),
            ClientSettings(),
            "ForbiddenClients: The platform does not offer issuer https://login.example.com",
            id="an issuer",
        ),
    ],
)
def test_clients_that_are_not_authenticated_as_the_platform_requires(
    clients: Clients | None, settings: ClientSettings, want: str
) -> None:
    builder = TRAFFIC.with_spec(clients=clients)
    verdict = judge_session(builder.build(), "", cluster().cluster(), OperatorSettings(clients=settings))
    assert verdict.refusal.startswith(want)
    assert bool(verdict.refusal) == bool(want)


def test_a_public_address_without_authentication_is_a_warning() -> None:
    builder = TRAFFIC.with_spec(expose={"ingress": {"host": "serve.example.com"}})
    allowed = ExposureSettings(allowed_hosts=("serve.example.com",), allowed_ingress_classes=("nginx",))
    settings = KUBERAY.model_copy(update={"exposure": allowed, "clients": ClientSettings(required=Required.EXPOSED)})
    (warning,) = judge_session(builder.build(), "", cluster().cluster(), settings).warnings
    assert warning.startswith("AuthenticationRequired: The platform requires that sessions with spec.expose")
    protected = builder.with_spec(clients=KEYS).build()
    assert judge_session(protected, "", cluster().cluster(), settings).warnings == ()


def test_a_public_address_that_is_not_allowed_is_a_warning() -> None:
    builder = TRAFFIC.with_spec(expose={"ingress": {"host": "serve.example.com"}})
    verdict = judge_session(builder.build(), "", cluster().cluster(), KUBERAY)
    (warning,) = verdict.warnings
    assert warning.startswith("ExposeNotAllowed: The platform does not allow host serve.example.com")
    assert not verdict.refusal


def test_an_unreadable_spec_is_refused_with_its_errors() -> None:
    complaint = "The spec is wrong: rate: give it"
    verdict = judge_session(TRAFFIC.build(), complaint, cluster().cluster(), OperatorSettings())
    assert complaint in verdict.refusal


def test_the_correction_of_an_unreadable_spec_passes() -> None:
    made = cluster()
    made.unreadable["default/traffic"] = "The spec is wrong."
    assert not judge_session(TRAFFIC.build(), "", made.cluster(), OperatorSettings()).refusal


def test_a_temporary_lack_of_accelerators_is_not_refused() -> None:
    made = cluster(pool("fast").gpus(0).build())
    assert not judge_session(TRAFFIC.build(), "", made.cluster(), OperatorSettings()).refusal
    made.delete("fast")
    assert not judge_session(TRAFFIC.build(), "", made.cluster(), OperatorSettings()).refusal


@pytest.mark.parametrize(
    ("quotas", "refused"),
    [
        pytest.param((0, None), False, id="one pool has no quota"),
        pytest.param((0, 1), False, id="one pool has a little"),
        pytest.param((0, 0), True, id="no pool has any"),
    ],
)
def test_a_namespace_with_a_quota_of_0_everywhere_is_refused(quotas: tuple[int | None, ...], refused: bool) -> None:
    pools = [
        pool(name).with_spec(quotas=() if most is None else (Quota(namespace="default", gpus=most),)).build()
        for name, most in zip(("fast", "slow"), quotas, strict=True)
    ]
    refusal = judge_session(TRAFFIC.build(), "", cluster(*pools).cluster(), OperatorSettings()).refusal
    assert refused == ("spec.quotas" in refusal)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, "", id="nothing in common"),
        pytest.param({"ray_resource": "partita-pool-fast"}, "the Ray resource partita-pool-fast", id="Ray resource"),
        pytest.param(
            {"node_selector": LabelSelector(match_labels={"gpu": "l4"})},
            "nvidia.com/gpu of the nodes gpu=l4",
            id="nodes",
        ),
        pytest.param(
            {"node_selector": LabelSelector(match_labels={"gpu": "l4"}), "resource_name": "nvidia.com/mig-1g.5gb"},
            "",
            id="slices of the nodes",
        ),
    ],
)
def test_pools_of_the_same_accelerators(spec: dict[str, Any], want: str) -> None:
    made = cluster(pool("fast").on_nodes({"gpu": "l4"}).build())
    refusal = judge_pool(pool("other").with_spec(**spec).build(), "", made.cluster()).refusal
    assert want in refusal
    assert bool(refusal) == bool(want)
    again = pool("fast").on_nodes({"gpu": "l4"}).build()
    assert not judge_pool(again, "", made.cluster()).refusal, "a pool is not compared with itself"


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        pytest.param("MPS", "MIG", "a node cannot have MPS and MIG", id="MPS on nodes with slices"),
        pytest.param("MIG", "MPS", "a node cannot have MPS and MIG", id="slices on nodes with MPS"),
        pytest.param("Cuts", "Cuts", "already has spec.mig for the nodes gpu=h100", id="two pools that cut"),
        pytest.param("Cuts", "MIG", "", id="the other slices of the same nodes"),
        pytest.param("Whole", "MIG", "", id="whole GPUs beside slices"),
    ],
)
def test_pools_of_the_same_nodes(one: str, other: str, want: str) -> None:
    def made(name: str, how: str, resource: str) -> GPUPool:
        layout = {"nodes": 1, "gpus": [{"count": 1, "slices": {"1g.10gb": 7}}]}
        spec: dict[str, Any] = {"nodeSelector": {"matchLabels": {"gpu": "h100"}}, "resourceName": resource}
        spec["sharing"] = {"mode": "MIG" if how == "Cuts" else how}
        spec |= {"mig": {"product": "H100-80GB", "layouts": [layout]}} if how == "Cuts" else {}
        return pool(name).build().model_copy(update={"spec": GPUPoolSpec.model_validate(spec)})

    there = cluster(made("first", one, "nvidia.com/mig-1g.10gb"))
    refusal = judge_pool(made("second", other, "nvidia.com/mig-2g.20gb"), "", there.cluster()).refusal
    assert want in refusal
    assert bool(refusal) == bool(want)


def test_a_lowered_pool_is_a_warning() -> None:
    made = cluster(pool("fast").gpus(8).build())
    made.add(TRAFFIC.rate(300).build())
    made.run(15)
    lowered = pool("fast").gpus(2).with_spec(quotas=(Quota(namespace="default", gpus=1),)).build()
    verdict = judge_pool(lowered, "", made.cluster())
    assert not verdict.refusal
    assert [("holds 3" in text or "hold 3" in text) for text in verdict.warnings] == [True, True]
