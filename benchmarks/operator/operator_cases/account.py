"""The operator's own account with the rights that the chart gives it: an administrator is exempt from API fairness."""

from pathlib import Path
from typing import Any, Final

import httpx
from tests.operator.chart.charts import documents

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.kubeconfig import write_kubeconfig

NAMESPACE: Final = "partita-system"
NAME: Final = "partita"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{NAME}"
_TOKEN_SECONDS: Final = 24 * 3600
_PLURALS: Final = {
    "ServiceAccount": "api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "FlowSchema": "apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
}


def create_account(plane: ControlPlane, kubeconfig: Path, values: dict[str, Any]) -> None:
    """Install the account of the chart with these values, and write a kubeconfig with its token."""
    with httpx.Client(
        base_url=plane.url, headers={"Authorization": f"Bearer {plane.token}"}, verify=False, trust_env=False
    ) as api:
        api.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}).raise_for_status()
        for manifest in documents(values, release=NAME):
            if where := _PLURALS.get(manifest["kind"]):
                namespace = manifest["metadata"].get("namespace", NAMESPACE)
                api.post("/" + where.format(namespace=namespace), json=manifest).raise_for_status()
        asked = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        token = api.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token", json=asked)
        write_kubeconfig(
            kubeconfig, plane.url, plane.authority.certificate, token.raise_for_status().json()["status"]["token"]
        )
