"""Why a pod does not start: what Kubernetes says, and what to do."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from partita_runtime.serving.deploy.function_containers import PREFIX

IMAGE_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Reasons of a waiting container whose image cannot be pulled."""
_ENDED: Final = frozenset({"CrashLoopBackOff", "CreateContainerError", "RunContainerError"})
"""Reasons of a waiting container that has ended, or could not be started."""
_NOT_ROOT: Final = "runAsNonRoot"
"""In the kubelet's message if an image has the wrong user."""
STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a container that waits for its volumes, its image or the init containers before it."""
LATE_START_SECONDS: Final = 45.0
"""How long a pod may wait for a node, or a placed one for its image and volumes, until what it waits for is named."""
_NOT_ALLOCATED: Final = ("cannot allocate all claims", "device class")
"""The scheduler's words on claims of devices; the second one starts the name of a DeviceClass that does not exist."""

PodDocument = Mapping[str, Any]
"""A Pod as the API server gives it."""


def start_problem(pod: PodDocument, now: datetime) -> str:
    """Why the pod does not start, and what to do; empty if it has started, or if nothing is known to be wrong."""
    for container, waiting in waiting_containers(pod):
        of_functions = str(container.get("name")).startswith(PREFIX)
        if waiting.get("reason") in IMAGE_REASONS:
            place = "spec.podTemplate of the session or the pool, or in the chart"
            return (
                f"Image {container.get('image')} cannot be pulled ({_words(waiting)}). Correct the image or its "
                f"imagePullSecrets, in {'the functions of the session, ' if of_functions else ''}{place}"
            )
        if of_functions and waiting.get("reason") in _ENDED:
            return (
                f"Container {container['name']} of image {container.get('image')} does not run ({_ended(container)}). "
                "The image needs python3, of version 3.11 or newer, with numpy"
            )
        if _NOT_ROOT in str(waiting.get("message")):
            return (
                f"Image {container.get('image')} runs as root, or as a user without a number ({_words(waiting)}). Set "
                "USER in the image to a number other than 0"
            )
        if waiting.get("reason") == "CreateContainerConfigError":
            return (
                f"{_words(waiting)}. Create it in the pod's namespace, or correct spec.podTemplate of the session or "
                "the pool"
            )
    return object_problem(pod, now)


def object_problem(pod: PodDocument, now: datetime) -> str:
    """Why the pod waits for its volumes or its devices, and what to do; empty if it does not."""
    return volume_problem(pod, now) or claim_problem(pod, now)


def volume_problem(pod: PodDocument, now: datetime) -> str:
    """Why the pod waits for its volumes, and what to do; empty if it does not, or has just been placed."""
    placed = _placement(pod)
    if placed.get("status") == "False" and "persistentvolumeclaim" in str(placed.get("message")).lower():
        claims = ", ".join(name for name in _objects_of_volumes(pod) if name.startswith("PersistentVolumeClaim "))
        return f"A volume is not bound ({_trimmed(placed['message'])}). Create or correct {claims}"
    reasons = {_waiting(container).get("reason") for container in _containers(pod)}
    creating = bool(reasons) and reasons <= STARTING
    objects = ", ".join(_objects_of_volumes(pod))
    if not creating or not objects or _seconds_since_placement(placed, now) < LATE_START_SECONDS:
        return ""
    return f"Its image or a volume is not there yet. Check that these exist in the pod's namespace: {objects}"


def claim_problem(pod: PodDocument, now: datetime) -> str:
    """Why the pod waits for the devices that it claims, and what to do; empty if it does not."""
    claims = ", ".join(f"ResourceClaim {name}" for name in _claims(pod))
    if not claims:
        return ""
    placed = _placement(pod)
    message = str(placed.get("message"))
    if placed.get("status") == "False" and any(words in message for words in _NOT_ALLOCATED):
        return (
            f"{claims} is not allocated ({_trimmed(message)}). Compare the devices in the driver's ResourceSlices with "
            "those that other ResourceClaims have"
        )
    no_sandbox = _condition(pod, "PodReadyToStartContainers").get("status") == "False"
    if no_sandbox and _seconds_since_placement(placed, now) >= LATE_START_SECONDS:
        return (
            f"{claims} is allocated, but its driver has not prepared the device. Check the driver on node "
            f"{pod['spec'].get('nodeName')}, and the events of pod {pod['metadata']['name']}"
        )
    return ""


def unplaced_problem(pod: PodDocument, now: datetime) -> str:
    """Why no node takes the pod, and what to do; empty if one does, or while a node may still come."""
    placed = _placement(pod)
    if placed.get("status") != "False" or _seconds_since(placed, now) < LATE_START_SECONDS:
        return ""
    return f"No node takes one ({_trimmed(str(placed.get('message')))}). Add nodes, or undo the last change of pods"


def waiting_containers(pod: PodDocument) -> Iterator[tuple[PodDocument, PodDocument]]:
    """The status and the waiting state of each container that waits, init containers first."""
    return ((container, waiting) for container in _containers(pod) if (waiting := _waiting(container)))


def _containers(pod: PodDocument) -> list[PodDocument]:
    """The statuses of all containers. KubeRay adds an init container to workers, service meshes to all pods."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(container: PodDocument) -> PodDocument:
    waiting: PodDocument = (container.get("state") or {}).get("waiting") or {}
    return waiting


def _placement(pod: PodDocument) -> PodDocument:
    return _condition(pod, "PodScheduled")


def _condition(pod: PodDocument, type: str) -> PodDocument:
    conditions: list[PodDocument] = (pod.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == type), {})


def _seconds_since_placement(placed: PodDocument, now: datetime) -> float:
    return _seconds_since(placed, now) if placed.get("status") == "True" else 0.0


def _seconds_since(condition: PodDocument, now: datetime) -> float:
    if not condition.get("lastTransitionTime"):
        return 0.0
    return (now - datetime.fromisoformat(condition["lastTransitionTime"])).total_seconds()


def _claims(pod: PodDocument) -> list[str]:
    """The ResourceClaims that were made for the pod."""
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return [claim["resourceClaimName"] for claim in made if claim.get("resourceClaimName")]


def _objects_of_volumes(pod: PodDocument) -> Iterator[str]:
    """The objects that the pod's volumes need, such as Secret hub."""
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            yield f"PersistentVolumeClaim {claim['claimName']}"
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            for field, kind in (("secret", "Secret"), ("configMap", "ConfigMap")):
                found = source.get(field)
                if found and not found.get("optional"):
                    yield f"{kind} {found.get('secretName') or found.get('name')}"


def _ended(container: PodDocument) -> str:
    """Why a container does not run: what its last attempt said, or why the next one waits."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    return _words(last if last.get("reason") else _waiting(container))


def _words(waiting: PodDocument) -> str:
    message = waiting.get("message")
    return f"{waiting['reason']}: {_trimmed(message)}" if message else str(waiting["reason"])


def _trimmed(message: str) -> str:
    return message.strip().rstrip(".")
