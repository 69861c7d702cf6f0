"""Containers beside a session's frontends: one for each image of its functions.

They are sidecars of Kubernetes: they start before the frontend's container and end after it. An init container copies
the program that they run from Partita's image. They have the variables and volumes of the session's pod template, and
neither Ray's token nor its files, nor the credentials of the sink.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from partita_api.pod.template import PodTemplate
from partita_api.session.module import Module
from partita_operator.pod_templates.merging import template_document
from partita_runtime.serving.deploy.function_containers import VARIABLE, function_container, function_socket

DIRECTORY: Final = "/etc/partita/functions"
"""Where all of these containers have the sockets and the program."""
_VOLUME: Final = "function-server"
_SCRATCH: Final = "/tmp"
_DELIVERY: Final = ["python", "-m", "partita_runtime.function_server.delivery", DIRECTORY]

FunctionImages = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Images of functions, in order, each with its resources."""


def function_images(modules: Iterable[Module]) -> FunctionImages:
    """The images of functions; functions of one image have the largest amount of each resource."""
    largest: dict[str, dict[str, Any]] = {}
    for module in modules:
        if module.function is not None and module.function.image is not None:
            amounts = largest.setdefault(module.function.image, {})
            given = module.function.resources
            for name, amount in () if given is None else given.amounts().items():
                amounts[name] = max(amounts.get(name, amount), amount, key=lambda quantity: quantity.value)
    found = ((image, {name: str(amount) for name, amount in largest[image].items()}) for image in sorted(largest))
    return tuple((image, tuple(sorted(amounts.items()))) for image, amounts in found)


def with_containers(
    pod: Mapping[str, Any], images: FunctionImages, template: PodTemplate | None, resources: Mapping[str, str]
) -> dict[str, Any]:
    """The `pod` of a frontend, with one container, with these. Images that set no resources have `resources`."""
    spec = pod["spec"]
    (frontend,) = spec["containers"]
    shared = {"name": _VOLUME, "mountPath": DIRECTORY}
    delivery = {
        "name": _VOLUME,
        "image": frontend["image"],
        "command": _DELIVERY,
        "resources": frontend["resources"],
        "securityContext": frontend["securityContext"],
        "volumeMounts": [shared],
    }
    of_template = {} if template is None else template_document(template)
    sidecars = [
        _sidecar(image, of_template, {**resources, **dict(amounts)}, frontend["securityContext"])
        for image, amounts in images
    ]
    scratch = [{"name": sidecar["name"], "emptyDir": {}} for sidecar in sidecars]
    mounted = {
        **frontend,
        "env": [*frontend["env"], {"name": VARIABLE, "value": DIRECTORY}],
        "volumeMounts": [*frontend["volumeMounts"], shared],
    }
    volumes = [*spec["volumes"], {"name": _VOLUME, "emptyDir": {}}, *scratch]
    containers = {"initContainers": [delivery, *sidecars], "containers": [mounted], "volumes": volumes}
    return {**pod, "spec": {**spec, **containers}}


def _sidecar(
    image: str, template: Mapping[str, Any], resources: Mapping[str, str], security: Mapping[str, Any]
) -> dict[str, Any]:
    name = function_container(image)
    mounts = [
        {"name": name, "mountPath": _SCRATCH},
        {"name": _VOLUME, "mountPath": DIRECTORY},
        *template.get("volumeMounts", ()),
    ]
    return {
        "name": name,
        "image": image,
        "restartPolicy": "Always",
        "command": ["python3", DIRECTORY, function_socket(DIRECTORY, image)],
        "env": [{"name": "HOME", "value": _SCRATCH}, *template.get("env", ())],
        **({"envFrom": template["envFrom"]} if "envFrom" in template else {}),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": dict(security),
        "volumeMounts": mounts,
    }
