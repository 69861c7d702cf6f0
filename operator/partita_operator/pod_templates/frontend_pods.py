"""The pods of a session's frontends: its pod template, containers for the images of its functions, and the Secret with
the credentials of its sink.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from partita_api.digests import digest
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import DIGITS, template_digest
from partita_api.session.request_log import RequestLog, SinkAuthorization
from partita_operator.pod_templates.function_containers import FunctionImages, function_images, with_containers
from partita_operator.pod_templates.manifest import with_template
from partita_runtime.serving.telemetry.sink_authorization import credentials_file

VOLUME: Final = "request-log"


@dataclass(frozen=True)
class FrontendPods:
    """What the pods of a session's frontends have in addition to what Partita needs."""

    template: PodTemplate | None = None
    functions: FunctionImages = ()
    """The images of functions, each of which has a container."""
    authorization: SinkAuthorization | None = None
    """Names the key of a Secret that they mount."""

    @classmethod
    def of(cls, spec: InferenceSessionSpec, request_log: RequestLog | None = None) -> "FrontendPods":
        """Those of a session that logs to this sink."""
        authorization = None if request_log is None else request_log.authorization
        return cls(spec.pod_template, function_images(spec.modules), authorization)

    @property
    def digest(self) -> str:
        """Identifies them; empty if they have nothing in addition, so all such sessions share them."""
        of_template = template_digest(self.template)
        added: dict[str, Any] = {"functions": self.functions} if self.functions else {}
        if self.authorization is not None:
            added["requestLogSecret"] = [self.authorization.secret_name, self.authorization.key]
        return digest({"template": of_template, **added}, DIGITS) if added else of_template

    def added_to(self, pod: Mapping[str, Any], function_resources: Mapping[str, str]) -> dict[str, Any]:
        """The `pod` (metadata and spec, with one container) with it. Functions that set no resources have these."""
        made = with_template(pod, self.template) if self.template is not None else dict(pod)
        if self.functions:
            made = with_containers(made, self.functions, self.template, function_resources)
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
