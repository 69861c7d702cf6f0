"""The tokens of namespaces on a real API server, with the rights that the chart gives the operator."""

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.operator.chart.charts import rendered
from tests.operator.handlers.faults.api_gap import ApiRoad
from tests.operator.kubectl import Kubectl, new_namespace

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.kubeconfig import write_kubeconfig
from partita_operator.engines import monitoring_tokens
from partita_operator.engines.monitoring_tokens import KEY, SECRET, KeptMonitoringTokens, derived_token
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.ports import EngineUnavailableError

pytestmark = pytest.mark.apiserver


@pytest.fixture
def own(control_plane: ControlPlane) -> Iterator[Kubectl]:
    """The operator's namespace, as an administrator uses it."""
    with new_namespace(control_plane.kubeconfig, f"monitoring-{uuid4().hex[:8]}") as admin:
        yield admin


@pytest.fixture
async def operator(control_plane: ControlPlane, own: Kubectl, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    """The API server as the operator uses it: with the chart's Role in its own namespace, and nothing else."""
    objects = rendered()
    account = own.namespace
    own.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}},
        {**objects["Role", "partita-own"], "metadata": {"name": "partita-own"}},
        {
            **objects["RoleBinding", "partita-own"],
            "metadata": {"name": "partita-own"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": own.namespace}],
        },
    )
    kubeconfig = tmp_path / "kubeconfig"
    token = own("create", "token", account).strip()
    write_kubeconfig(kubeconfig, control_plane.url, control_plane.authority.certificate, token)
    async with KubernetesClient(await load_config(kubeconfig)) as client:
        yield client


def kept(own: Kubectl) -> dict[str, str]:
    secret = own.get("secret", SECRET)
    return {name: b64decode(value).decode() for name, value in secret["data"].items()} if secret else {}


async def test_each_namespace_has_its_own_token_which_every_replica_of_the_operator_knows(
    operator: KubernetesClient, own: Kubectl
) -> None:
    tokens = KeptMonitoringTokens(operator, own.namespace)
    first, second = await tokens.of("team-a"), await tokens.of("team-b")
    assert first != second
    assert await tokens.of("team-a") == first

    found = kept(own)
    assert found == {"team-a": first, "team-b": second, KEY: found[KEY]}
    assert len(found[KEY]) > 32
    assert first == derived_token(found[KEY], "team-a")
    assert await KeptMonitoringTokens(operator, own.namespace).of("team-a") == first


async def test_the_token_of_a_namespace_without_sessions_is_removed_and_returns_with_the_next_one(
    operator: KubernetesClient, own: Kubectl
) -> None:
    tokens = KeptMonitoringTokens(operator, own.namespace)
    first = await tokens.of("team-a")
    await tokens.of("team-b")
    await tokens.forget("team-a")
    await tokens.forget("never-seen")
    assert kept(own).keys() == {"team-b", KEY}
    assert await tokens.of("team-a") == first
    assert kept(own)["team-a"] == first


async def test_a_token_outlasts_an_absence_of_the_api_server(
    control_plane: ControlPlane, own: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_tokens, "_READ_SECONDS", 0.0)
    road = ApiRoad(control_plane)
    async with (
        road.kubeconfig(tmp_path) as kubeconfig,
        KubernetesClient(await load_config(kubeconfig)) as client,
    ):
        tokens = KeptMonitoringTokens(client, own.namespace)
        first = await tokens.of("team-a")
        await road.cut()
        assert await tokens.of("team-a") == first
        with pytest.raises(ApiServerUnavailableError):
            await tokens.of("team-b")
        road.mend()
        assert await tokens.of("team-b") != first
        assert await tokens.of("team-a") == first


async def test_a_namespace_cannot_take_the_place_of_the_key(operator: KubernetesClient, own: Kubectl) -> None:
    """Kubernetes refuses the name, so no session can be there."""
    assert "a lowercase RFC 1123 label" in own.run("create", "namespace", KEY).stderr
    await KeptMonitoringTokens(operator, own.namespace).of("team-a")
    assert kept(own)[KEY]


async def test_without_rights_it_says_which_are_missing(operator: KubernetesClient, own: Kubectl) -> None:
    own("delete", "rolebinding", "partita-own")
    with pytest.raises(EngineUnavailableError, match=f"(?s){own.namespace}/{SECRET}.*Role for its own namespace"):
        await KeptMonitoringTokens(operator, own.namespace).of("team-a")
