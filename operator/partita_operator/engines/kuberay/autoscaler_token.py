"""Ray's autoscaler has a token of Kubernetes; the other containers of the head's pod have none. Pure.

Ray runs code of sessions on the head, too: drivers of its Jobs API, and the tasks that build Serve applications. So the
pod mounts no token by itself. The autoscaler's container gets one from a projected volume.
"""

from typing import Any, Final

from partita_operator.engines.kuberay.comparison import ClusterSpec

_VOLUME: Final = "kubernetes-api"
_DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where clients of Kubernetes in a pod look for their token."""
_TOKEN_SECONDS: Final = 3607
"""The validity that Kubernetes gives to tokens that it mounts by itself; the kubelet renews them."""
_PROJECTED: Final = {
    "name": _VOLUME,
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
    },
}


def with_token_for_autoscaler_only(cluster: ClusterSpec) -> dict[str, Any]:
    """The specification with a token in the autoscaler's container only."""
    head = cluster["headGroupSpec"]
    pod = head["template"]["spec"]
    made = {**pod, "automountServiceAccountToken": False, "volumes": [*pod["volumes"], _PROJECTED]}
    mount = {"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True}
    return {
        **cluster,
        "autoscalerOptions": {**cluster["autoscalerOptions"], "volumeMounts": [mount]},
        "headGroupSpec": {**head, "template": {**head["template"], "spec": made}},
    }


def mounts_token_everywhere(cluster: ClusterSpec) -> bool:
    """Whether the Ray cluster was made before only its autoscaler had a token."""
    return bool(cluster["headGroupSpec"]["template"]["spec"].get("automountServiceAccountToken", True))
