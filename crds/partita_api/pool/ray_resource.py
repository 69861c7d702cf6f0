"""Ray resources that only pods with a session's pod template offer, such as partita-pool-t4@3f9a0c51.

The part before `@` is the resource of the pool, which all these pods share. The part after it identifies the template.
"""

from typing import Final

from partita_api.digests import digest
from partita_api.pod.template import PodTemplate

SEPARATOR: Final = "@"
DIGITS: Final = 8
"""Length of what identifies a template."""


def template_digest(template: PodTemplate | None) -> str:
    """Identifies a session's template; empty if it sets nothing."""
    document = {} if template is None else template.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return digest(document, DIGITS) if document else ""


def with_digest(resource: str, digest: str) -> str:
    """The resource of pods with this template; the same resource for an empty digest."""
    return f"{resource}{SEPARATOR}{digest}" if digest else resource


def shared_resource(resource: str) -> str:
    """The resource without a template: pods of all templates take from it together.

    >>> shared_resource("partita-pool-t4@3f9a0c51")
    'partita-pool-t4'
    """
    return resource.partition(SEPARATOR)[0]


def digest_of(resource: str) -> str:
    """Identifies the template of the pods that offer the resource; empty if it is no session's."""
    return resource.partition(SEPARATOR)[2]
