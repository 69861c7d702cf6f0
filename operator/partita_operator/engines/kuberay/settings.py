"""Settings of the engine KubeRay: the pods of its Ray clusters, and their addresses."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from partita_api.meta import SpecModel

URL_PATTERN: Final = r"^https?://.+"


def _url_template(template: str) -> str:
    try:
        template.format(service="service", namespace="namespace")
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"{template!r} may contain only the placeholders {{service}} and {{namespace}}") from error
    return template


UrlTemplate = Annotated[str, Field(pattern=URL_PATTERN), AfterValidator(_url_template)]
ResourceList = dict[str, Annotated[str, Field(max_length=64)]]


class RayPods(SpecModel):
    """One kind of pod of the Ray clusters. After any change KubeRay replaces the clusters, one namespace at a time."""

    resources: ResourceList = Field(
        default={"cpu": "2", "memory": "4Gi"},
        description="Requests and limits of one pod, besides its accelerator.",
    )
    node_selector: dict[str, str] = Field(default={}, description="Labels of the nodes that it may run on.")
    tolerations: tuple[dict[str, Any], ...] = Field(default=(), description="Taints that it tolerates.")


class KubeRaySettings(SpecModel):
    """All settings of the engine."""

    image: str = Field(min_length=1, description="Image of all Ray pods: Ray, Partita and the models.")
    image_pull_secrets: tuple[str, ...] = Field(
        default=(), description="Names of Secrets for the image, in each namespace with sessions."
    )
    ray_version: str = Field(default="", description="Version of Ray in the image, such as 2.60.0.")
    head: RayPods = Field(default=RayPods(), description="Pods of the heads. No code of a session runs in them.")
    frontends: RayPods = Field(default=RayPods(), description="Pods of the frontends of sessions.")
    workers: RayPods = Field(
        default=RayPods(),
        description="Pods with one accelerator each. They run on the nodes of the accelerator's pool.",
    )
    frontends_per_pod: int = Field(default=4, ge=1, le=1000, description="Maximum number of frontends in one pod.")
    idle_seconds: int = Field(default=60, ge=1, description="Seconds until Ray's autoscaler removes an idle worker.")
    upgrade_strategy: dict[str, Any] = Field(
        default={},
        description='KubeRay\'s upgradeStrategy, such as {"type": "NewClusterWithIncrementalUpgrade", ...}. '
        "Default: KubeRay's own.",
    )
    auth_secret: str = Field(
        default="",
        description="Name of a Secret with Ray's token, in each namespace with sessions. Default: no token.",
    )
    dashboard_url: UrlTemplate = Field(
        default="http://{service}.{namespace}.svc:8265",
        description="URL of a Ray dashboard, with {service} and {namespace} of its head service.",
    )
    serve_url: UrlTemplate = Field(
        default="http://{service}.{namespace}.svc:8000",
        description="URL under which clients, and the operator, reach Ray Serve's HTTP proxies, with {service} and "
        "{namespace} of the RayService's serve service.",
    )
