"""A pool as the pods of one session see it: with the session's pod template.

The pool's values count where both set the same, because the platform writes pools. Sessions with different templates
need different pods, so such a pool has a Ray resource of its own.
"""

from pydantic import ValidationError

from partita_api.gpupool import GPUPool
from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import template_digest, with_digest
from partita_operator.pod_templates.merging import merged, template_document


class TemplateConflictError(Exception):
    """The templates of a pool and a session do not fit together; the message says why and what to do."""


def session_pool(pool: GPUPool, template: PodTemplate | None) -> GPUPool:
    """The pool with the session's template; the same pool if the session has none. Raises TemplateConflictError."""
    digest = template_digest(template)
    if template is None or not digest:
        return pool
    name, own = pool.metadata.name, pool.spec.pod_template
    if template.image is not None and own.image not in (None, template.image):
        raise TemplateConflictError(
            f"spec.podTemplate.image: GPUPool {name} needs an image of its own, {own.image}. Remove the image, or "
            "exclude the pool by spec.pools"
        )
    both = merged(template_document(template), template_document(own))
    try:
        combined = PodTemplate.model_validate(both)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(str(part) for part in ("spec.podTemplate", *found["loc"]))
        raise TemplateConflictError(
            f"{where}: with the podTemplate of GPUPool {name} it is invalid ({found['msg']}). Correct one of the "
            "two, or exclude the pool by spec.pools"
        ) from error
    spec = pool.spec.model_copy(
        update={"pod_template": combined, "ray_resource": with_digest(pool.ray_resource, digest)}
    )
    return pool.model_copy(update={"spec": spec})
