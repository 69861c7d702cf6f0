"""The console with the rights of its user on a real API server: RBAC, missing kinds, and a server that hangs."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.operator.chart.charts import rendered
from tests.operator.cli.console.running import running_console, until_shown
from tests.operator.kubectl import Kubectl, cluster_with_crds, install_definitions, new_namespace, pool, session

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.control_plane.lifecycle import control_plane as started_control_plane
from partita_devtools.machine.kubeconfig import write_kubeconfig
from partita_operator.console.reading import follower

pytestmark = pytest.mark.apiserver

cluster = cluster_with_crds
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """kubectl as an administrator, in a namespace with a session."""
    with new_namespace(cluster.kubeconfig, f"console-{uuid4().hex[:8]}") as made:
        made.apply(session("traffic"), pool("console-pool"))
        made("create", "serviceaccount", "viewer")
        yield made
        made.clear(made.namespace)


@pytest.fixture
def viewer(namespace: Kubectl, control_plane: ControlPlane, tmp_path: Path) -> Path:
    """A kubeconfig of a user without rights, whose context has the namespace."""
    path = tmp_path / "kubeconfig"
    token = namespace("create", "token", "viewer").strip()
    write_kubeconfig(path, control_plane.url, control_plane.authority.certificate, token, namespace.namespace)
    return path


def grant(namespace: Kubectl, resources: list[str], group: str = "partita.dev", *, everywhere: bool = False) -> str:
    """Let the viewer read these kinds in the namespace, or everywhere; the name of the grant."""
    name = f"{namespace.namespace}-{'-'.join(resources)}"
    prefix = "Cluster" if everywhere else ""
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace.namespace}
    rules = [{"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name}
    namespace.apply(
        {"apiVersion": RBAC, "kind": f"{prefix}Role", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": RBAC,
            "kind": f"{prefix}RoleBinding",
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    return name


async def test_a_user_of_one_namespace_sees_its_sessions_and_what_is_missing(
    namespace: Kubectl, viewer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "RETRY_REFUSED_S", 0.5)
    grant(namespace, ["inferencesessions", "pipelineplans"])
    path = f"/sessions/{namespace.namespace}/traffic"

    async with running_console(viewer) as client:
        page = await until_shown(client, "/", path)
        detail = (await client.get(path)).text
        granted = grant(namespace, ["gpupools"], everywhere=True)
        try:
            complete = await until_shown(client, "/", "/pools/console-pool")
        finally:
            namespace("delete", "clusterrole,clusterrolebinding", granted)

    assert "You may not list the sessions of all namespaces" in page
    assert "You may not read pools." in page
    assert "cannot list resource" in page
    assert "There is no GPUPool" not in page
    assert "They cannot be read" in detail, "events"
    assert "You may not read pools." not in complete


async def test_the_account_of_the_chart_may_read_all_that_is_shown(namespace: Kubectl, viewer: Path) -> None:
    name = namespace.namespace
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace.namespace}
    objects = rendered({"console": {"enabled": True}, "scope": "Cluster"})
    role, binding = objects["ClusterRole", "partita-console"], objects["ClusterRoleBinding", "partita-console"]
    meta = {"name": name}
    reference = {**binding["roleRef"], "name": name}
    namespace.apply(
        {**role, "metadata": meta}, {**binding, "metadata": meta, "roleRef": reference, "subjects": [account]}
    )
    try:
        async with running_console(viewer) as client:
            page = await until_shown(client, "/", f"/sessions/{namespace.namespace}/traffic")
            details = [
                (await client.get(path)).text
                for path in (f"/sessions/{namespace.namespace}/traffic", "/pools/console-pool")
            ]
    finally:
        namespace("delete", "clusterrole,clusterrolebinding", name)

    assert "You may not" not in page
    assert "cannot be read" not in "".join(details)


async def test_several_namespaces_are_read_as_far_as_allowed(namespace: Kubectl, viewer: Path) -> None:
    grant(namespace, ["inferencesessions", "pipelineplans"])

    async with running_console(viewer, namespace.namespace, "kube-system") as client:
        page = await until_shown(client, "/", f"/sessions/{namespace.namespace}/traffic")

    assert "You may not read sessions of namespace kube-system." in page
    assert f"You may not read sessions of namespace {namespace.namespace}." not in page
    assert "You may not list the sessions of all namespaces" not in page


async def test_a_user_without_rights_is_told_so(viewer: Path) -> None:
    async with running_console(viewer) as client:
        page = await until_shown(client, "/", "You may not read sessions of namespace")

    assert "You may not read pools." in page
    assert "You may not read plans of namespace" in page
    assert "There is no InferenceSession" not in page


async def test_an_api_server_that_hangs_leaves_the_last_pages(
    namespace: Kubectl, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PATIENCE_S", 1.0)
    path = f"/sessions/{namespace.namespace}/traffic"

    async with running_console(namespace.kubeconfig, namespace.namespace) as client:
        await until_shown(client, "/", path)
        control_plane.pause_api_server()
        try:
            page = await until_shown(client, "/", "Out of date")
            detail = (await client.get(path)).text
        finally:
            control_plane.resume_api_server()
        await until_shown(client, "/", "Out of date", shown=False)

    assert "does not answer within 1 s." in page
    assert path in page
    assert "traffic" in detail


async def test_missing_kinds_are_explained_until_they_are_installed(
    kubernetes_binaries: Binaries, tmp_path: Path
) -> None:
    """On a separate control plane: a deletion of definitions also deletes the objects of other tests."""
    with started_control_plane(tmp_path / "state", binaries=kubernetes_binaries) as plane:
        kubectl = Kubectl(plane.kubeconfig, "default")
        async with running_console(plane.kubeconfig) as client:
            page = await until_shown(client, "/", "Nothing is known yet")
            assert "The cluster has no GPUPool (partita.dev/v1alpha1)" in page
            assert "partita crds | kubectl apply -f -" in page
            install_definitions(kubectl)
            await until_shown(client, "/", "There is no GPUPool.")
            kubectl.apply(session("traffic"))
            await until_shown(client, "/", "/sessions/default/traffic")
