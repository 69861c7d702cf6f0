"""Settings of KubeRay: the pods of its Ray clusters, and the addresses of these clusters."""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, SecretStr

from partita_operator.settings.section import URL_PATTERN, FromSecret, Section


def _url_template(template: str) -> str:
    try:
        template.format(service="service", namespace="namespace")
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError("it may contain only the placeholders {service} and {namespace}") from error
    return template


def _namespace_template(template: str) -> str:
    try:
        template.format(namespace="namespace")
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError("it may contain only the placeholder {namespace}") from error
    return template


_NOT_IN_PASSWORDS: Final = frozenset(" \t\r\n*?[\\\"'")
"""KubeRay puts the password into a shell command, without quotes, and the chart into Redis' configuration."""


def _password(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and not _NOT_IN_PASSWORDS.isdisjoint(secret.get_secret_value()):
        raise ValueError(
            "the password may not contain spaces, line breaks, quotes, backslashes, *, ? and [. Does the Secret end "
            "with a line break?"
        )
    return secret


UrlTemplate = Annotated[str, Field(pattern=URL_PATTERN), AfterValidator(_url_template)]
ResourceList = dict[str, Annotated[str, Field(max_length=64)]]


class RayAuthentication(StrEnum):
    """Who may use the Ray clusters."""

    TOKEN = "Token"
    DISABLED = "Disabled"


class RayPods(Section):
    """One kind of pod of the Ray clusters. On any change KubeRay replaces the clusters, one namespace at a time."""

    resources: ResourceList = Field(
        default={"cpu": "2", "memory": "4Gi"},
        description="Requests and limits of one pod, in addition to its accelerator.",
    )
    node_selector: dict[str, str] = Field(default={}, description="Labels of the nodes that the pod may run on.")
    tolerations: tuple[dict[str, Any], ...] = Field(default=(), description="Taints that the pod tolerates.")


class KubeRaySettings(Section):
    """How sessions with engine.type KubeRay are served: by one RayService in each namespace with such sessions."""

    image: str = Field(
        default="", description="Image of all Ray pods: Ray, Partita and the models. Empty: KubeRay is not used."
    )
    image_pull_secrets: tuple[str, ...] = Field(
        default=(), description="Names of Secrets for the image, in each namespace with sessions."
    )
    ray_version: str = Field(default="", description="Version of Ray in the image, such as 2.60.0.")
    head: RayPods = Field(default=RayPods(), description="The head. It runs no code of sessions.")
    frontends: RayPods = Field(default=RayPods(), description="Pods for the frontends of sessions.")
    workers: RayPods = Field(
        default=RayPods(),
        description="Pods with one accelerator each. They also get the node selector of the accelerator's pool.",
    )
    function_resources: ResourceList = Field(
        default={"cpu": "1", "memory": "1Gi"},
        description="Requests and limits of a container for functions with an image, unless the session sets them.",
    )
    frontends_per_pod: int = Field(
        default=4, ge=1, le=1000, description="Most frontends in one pod; each takes half a CPU."
    )
    idle_seconds: int = Field(
        default=60, ge=1, description="Seconds until Ray's autoscaler removes a worker pod without replicas."
    )
    drain_seconds: int = Field(
        default=120,
        ge=1,
        le=86_400,
        description="Most seconds that a worker pod that is told to end, for example by a drain of its node, serves "
        "on while its replicas start elsewhere. Present Ray clusters get the seconds when KubeRay replaces them.",
    )
    upgrade_strategy: dict[str, Any] = Field(
        default={},
        description='KubeRay\'s upgradeStrategy, such as {"type": "NewClusterWithIncrementalUpgrade", ...}. '
        "Empty: KubeRay's default.",
    )
    redis_address: Annotated[str, AfterValidator(_namespace_template)] = Field(
        default="",
        description="Address of a Redis for the state of Ray's heads, such as redis.ray.svc:6379; {namespace} stands "
        "for the session's namespace. Workers then serve on while a head is replaced. Empty: all pods of a Ray cluster "
        "are replaced with its head.",
    )
    redis_secret: str = Field(
        default="",
        description="Name of a Secret with the password of that Redis (key password), in each namespace with sessions. "
        "Empty: Partita gives each of these namespaces the password of kuberay.redisPasswordSecret.",
    )
    redis_password: Annotated[
        SecretStr | None, FromSecret("kuberay.redisPasswordSecret"), AfterValidator(_password)
    ] = Field(
        default=None,
        description="Password of that Redis, for the operator and the heads. It may not contain spaces, quotes, "
        "backslashes, *, ? and [.",
    )
    authentication: RayAuthentication = Field(
        default=RayAuthentication.TOKEN,
        description="Token: Ray accepts only clients with the token of their namespace (needs KubeRay 1.6). Disabled: "
        "Ray accepts every client. Present Ray clusters get a token when KubeRay replaces them.",
    )
    auth_secret: str = Field(
        default="",
        description="Name of a Secret with Ray's token (key auth_token), in each namespace with sessions. "
        "Empty: Partita makes a Secret with a random token in each namespace.",
    )
    transport_tls: bool = Field(
        default=False,
        description="Frontends, replicas and coordinators of a namespace connect to each other by TLS 1.3 only, and "
        "both sides show a certificate. Ray's own connections are not encrypted.",
    )
    transport_tls_secret: str = Field(
        default="",
        description="Name of a Secret with ca.crt, tls.crt and tls.key, in each namespace with sessions. The "
        "certificate is for servers and clients, with the DNS name partita-ray.NAMESPACE. Empty: Partita makes and "
        "renews a certificate for each namespace.",
    )
    dashboard_url: UrlTemplate = Field(
        default="http://{service}.{namespace}.svc:8265",
        description="URL of a Ray dashboard; {service} and {namespace} stand for its head service.",
    )
    serve_url: UrlTemplate = Field(
        default="http://{service}.{namespace}.svc:8000",
        description="URL under which clients and the operator reach Ray Serve's HTTP proxies; {service} and "
        "{namespace} stand for the RayService's serve service.",
    )
    token: Annotated[SecretStr | None, FromSecret("kuberay.tokenSecret")] = Field(
        default=None, description="The token in the Secrets of kuberay.authSecret, for the operator."
    )

    @property
    def enabled(self) -> bool:
        """Whether sessions may be served through KubeRay."""
        return self.image != ""

    @property
    def generates_token(self) -> bool:
        """Whether Partita makes Ray's tokens."""
        return self.authentication is RayAuthentication.TOKEN and not self.auth_secret

    @property
    def makes_certificates(self) -> bool:
        """Whether Partita makes the certificates of the pods."""
        return self.transport_tls and not self.transport_tls_secret

    @property
    def shares_redis_password(self) -> bool:
        """Whether Partita gives the Redis's password to the namespaces with sessions."""
        return self.redis_address != "" and self.redis_password is not None and not self.redis_secret

    def redis_address_of(self, namespace: str) -> str:
        """The Redis of the namespace's heads; empty without a Redis."""
        return self.redis_address.format(namespace=namespace)
