"""A pod of Partita: what Partita itself needs, with a pod template."""

from collections.abc import Mapping
from typing import Any, Final

from partita_api.pod.template import PodTemplate
from partita_operator.pod_templates.merging import merged, template_document

_OF_CONTAINER: Final = ("image", "env", "envFrom", "volumeMounts", "resources")
"""Fields of a template that Kubernetes has in containers."""


def with_template(pod: Mapping[str, Any], template: PodTemplate) -> dict[str, Any]:
    """The `pod` (metadata and spec, with one container) with what the template adds.

    The template cannot have what Partita itself needs: `partita_api.pod.reserved` has these names.
    """
    spec = dict(pod["spec"])
    (container,) = spec.pop("containers")
    own = {
        **spec,
        "metadata": pod["metadata"],
        **{field: container[field] for field in _OF_CONTAINER if field in container},
    }
    combined = merged(own, template_document(template))
    of_container = {field: combined.pop(field) for field in _OF_CONTAINER if field in combined}
    metadata = combined.pop("metadata")
    return {"metadata": metadata, "spec": {**combined, "containers": [{**container, **of_container}]}}
