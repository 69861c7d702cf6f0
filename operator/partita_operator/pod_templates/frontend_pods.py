"""The pods of a session's frontends: its pod template, and the Secret with the credentials of its sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from partita_api.digests import digest
from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import template_digest
from partita_api.session.request_log import RequestLog, SinkAuthorization
from partita_operator.pod_templates.manifest import with_template
from partita_runtime.serving.telemetry.sink_authorization import credentials_file

VOLUME: Final = "request-log"
_DIGITS: Final = 8


@dataclass(frozen=True)
class FrontendPods:
    """What the pods of a session's frontends have in addition to what Partita needs."""

    template: PodTemplate | None = None
    authorization: SinkAuthorization | None = None
    """Names the key of a Secret that they mount."""

    @classmethod
    def of(cls, template: PodTemplate | None, request_log: RequestLog | None) -> "FrontendPods":
        """Those of a session with this template that logs to this sink."""
        return cls(template, None if request_log is None else request_log.authorization)

    @property
    def digest(self) -> str:
        """Identifies them; empty if they have nothing in addition, so all such sessions share them."""
        of_template = template_digest(self.template)
        if self.authorization is None:
            return of_template
        secret = [self.authorization.secret_name, self.authorization.key]
        return digest({"template": of_template, "requestLogSecret": secret}, _DIGITS)

    def added_to(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """The `pod` (metadata and spec, with one container) with it."""
        made = with_template(pod, self.template) if self.template is not None else dict(pod)
        return made if self.authorization is None else _with_secret(made, self.authorization)


NOTHING_ADDED: Final = FrontendPods()


def _with_secret(pod: Mapping[str, Any], authorization: SinkAuthorization) -> dict[str, Any]:
    """The pod with a file for the key, which changes with the Secret. It starts without the Secret, too."""
    key, path = authorization.key, credentials_file(authorization)
    source = {"secretName": authorization.secret_name, "items": [{"key": key, "path": path.name}], "optional": True}
    volume = {"name": VOLUME, "secret": source}
    mount = {"name": VOLUME, "mountPath": str(path.parent), "readOnly": True}
    spec = pod["spec"]
    (container,) = spec["containers"]
    mounted = {**container, "volumeMounts": [*container["volumeMounts"], mount]}
    return {**pod, "spec": {**spec, "containers": [mounted], "volumes": [*spec["volumes"], volume]}}
