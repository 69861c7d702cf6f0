"""What authenticates in the Ray clusters. Pure.

Tokens: Ray's own, which its clients need, and Kubernetes', which only the autoscaler has. Certificates: those that the
frontends and replicas of a namespace show each other, if the settings ask for TLS.

Ray runs code of sessions on the head, too: drivers of its Jobs API, and the tasks that build Serve applications. So the
head's pod mounts no token of Kubernetes by itself. The autoscaler's container gets one from a projected volume.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from partita_api.meta import GROUP
from partita_operator.engines.kuberay.comparison import ClusterSpec
from partita_operator.engines.kuberay.worker_groups import WorkerGroup
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, TlsFiles

SECRET: Final = "partita-ray"
"""Name of the Secret that Partita makes in each namespace."""
TOKEN_KEY: Final = "auth_token"
"""Where KubeRay looks for the token in a Secret."""
DIGEST_ANNOTATION: Final = f"{GROUP}/ray-token-digest"
"""On the head's pod: identifies the generated token that the Ray cluster was started with."""
REQUEST_ANNOTATION: Final = f"{GROUP}/authenticate"
"""On a RayService without authentication: do not wait until KubeRay replaces its Ray cluster."""
_OLDEST_RAY: Final = "2.60.0"
"""KubeRay accepts a token only with a version of Ray; this is the oldest that Partita supports."""
_DIGEST_CHARACTERS: Final = 16
REPLACE_FOR_TOKEN: Final = (
    "Ray accepts clients without a token, because the Ray cluster was made without one. The next Ray cluster has one. "
    "To let KubeRay make it now, which needs twice the accelerators for a while: kubectl annotate rayservice partita "
    f"-n {{namespace}} {REQUEST_ANNOTATION}=now"
)

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

_TLS_VOLUME: Final = "transport-tls"
_TLS_DIRECTORY: Final = "/etc/partita/transport"

RayService = Mapping[str, Any]


@dataclass(frozen=True)
class RayToken:
    """The token of a namespace's Ray clusters."""

    secret: str
    """Name of the Secret that has it."""
    value: str | None = field(repr=False)
    """None: the operator does not know it."""
    generated: bool
    """Whether Partita made it. Otherwise the settings name the Secret."""

    @property
    def digest(self) -> str:
        """Identifies a generated token; empty for others."""
        return sha256(self.value.encode()).hexdigest()[:_DIGEST_CHARACTERS] if self.value and self.generated else ""


def with_authentication(cluster: ClusterSpec, present: RayService | None, token: RayToken | None) -> dict[str, Any]:
    """The specification with the token; None switches authentication off, also that of a `present` RayService."""
    if token is None:
        has_options = present is not None and authenticates(present)
        return {**cluster, **({"authOptions": {"mode": "disabled"}} if has_options else {})}
    options = {"mode": "token", "secretName": token.secret}
    made = {"rayVersion": _OLDEST_RAY, **cluster, "authOptions": options}
    if token.digest:
        head = cluster["headGroupSpec"]
        meta = head["template"]["metadata"]
        annotations = {**_annotations(head["template"]), DIGEST_ANNOTATION: token.digest}
        made["headGroupSpec"] = {
            **head,
            "template": {**head["template"], "metadata": {**meta, "annotations": annotations}},
        }
    return made


def may_wait_for_token(present: RayService, token: RayToken | None) -> bool:
    """Whether a Ray cluster without a token may stay so until KubeRay replaces it for another reason.

    It may not if the settings name a Secret, or someone has annotated the RayService.
    """
    requested = REQUEST_ANNOTATION in _annotations(present)
    return token is not None and token.generated and not requested and not authenticates(present)


def authenticates(rayservice: RayService) -> bool:
    """Whether the Ray cluster in the RayService has options for authentication."""
    return "authOptions" in _cluster(rayservice)


def has_token(rayservice: RayService, token: RayToken | None) -> bool:
    """Whether the Ray cluster in the RayService is specified with this token."""
    if token is None:
        return False
    cluster = _cluster(rayservice)
    if (cluster.get("authOptions") or {}).get("mode") != "token":
        return False
    return (
        not token.generated or _annotations(cluster["headGroupSpec"]["template"]).get(DIGEST_ANNOTATION) == token.digest
    )


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


def tls_name(namespace: str) -> str:
    """The DNS name in the certificates of the namespace's pods."""
    return f"{SECRET}.{namespace}"


def tls_files(namespace: str, settings: KubeRaySettings) -> TlsFiles | None:
    """Where processes of the namespace find the certificate; None without TLS."""
    return TlsFiles(directory=_TLS_DIRECTORY, name=tls_name(namespace)) if settings.transport_tls else None


def with_certificate(group: WorkerGroup, settings: KubeRaySettings) -> WorkerGroup:
    """The group, whose pods have the certificate if the settings ask for TLS, and else have none."""
    template = group["template"]
    (container,) = template["spec"]["containers"]
    secret = settings.transport_tls_secret or SECRET
    items = [{"key": file, "path": file} for file in (AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE)]
    volume = {"name": _TLS_VOLUME, "secret": {"secretName": secret, "items": items}}
    mount = {"name": _TLS_VOLUME, "mountPath": _TLS_DIRECTORY, "readOnly": True}
    mounts = [*_without_certificate(container["volumeMounts"]), *([mount] if settings.transport_tls else [])]
    spec = {
        **template["spec"],
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": [*_without_certificate(template["spec"]["volumes"]), *([volume] if settings.transport_tls else [])],
    }
    return {**group, "template": {**template, "spec": spec}}


def _without_certificate(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Volumes or mounts without the certificate's."""
    return [entry for entry in entries if entry["name"] != _TLS_VOLUME]


def _cluster(rayservice: RayService) -> ClusterSpec:
    cluster: ClusterSpec = rayservice["spec"]["rayClusterConfig"]
    return cluster


def _annotations(document: Mapping[str, Any]) -> Mapping[str, str]:
    return document["metadata"].get("annotations") or {}
