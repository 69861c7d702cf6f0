"""Partita's objects in local mode, for people: references to them, tables, deletion."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from partita_api.crd_schema import KINDS, CustomResource
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.errors import DevError
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import PlanResource, PoolResource, SessionResource
from partita_operator.kube.retries import retried

RESOURCES: Final[dict[str, Any]] = {
    "gpupools": PoolResource,
    "inferencesessions": SessionResource,
    "pipelineplans": PlanResource,
}
_FIELD: Final = re.compile(r"\.(\w+)|\[\?\(@\.(\w+)==\"(\w+)\"\)\]")
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class ObjectReference:
    """Objects of one kind: the one with the name, or all of them."""

    kind: CustomResource
    name: str | None = None

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of the kind are in namespaces."""
        return self.kind.scope == "Namespaced"

    def __str__(self) -> str:
        return f"{self.kind.short}/{self.name}" if self.name else self.kind.plural


def parse_reference(text: str) -> ObjectReference:
    """KIND or KIND/NAME, with the kinds' names that kubectl knows, such as isess. Raises ValueError."""
    word, _, name = text.partition("/")
    for kind in KINDS:
        if word.lower() in (kind.short, kind.plural, kind.name.lower()):
            return ObjectReference(kind, name or None)
    known = ", ".join(kind.short for kind in KINDS)
    raise ValueError(f"{text!r} names no kind of local mode; give {known}, or one object such as isess/NAME")


def reference_to(resource: GPUPool | InferenceSession) -> ObjectReference:
    """The reference to an object."""
    return ObjectReference(next(kind for kind in KINDS if kind.name == resource.kind), resource.metadata.name)


async def find(client: KubernetesClient, reference: ObjectReference, namespace: str) -> Sequence[Document]:
    """The objects that a reference names, in a namespace (empty: in all). Raises DevError if there is no such one."""
    resource = RESOURCES[reference.kind.plural]
    place = namespace if reference.is_namespaced else ""
    if reference.name is None:
        return await retried(lambda: client.list(resource, place))
    name = reference.name
    try:
        return [await retried(lambda: client.get(resource, name, place))]
    except ApiError as error:
        if not is_missing(error):
            raise
        present = [document["metadata"]["name"] for document in await client.list(resource, place)]
        where = f" in namespace {place}" if place else ""
        raise DevError(f"there is no {reference}{where}; there are: {', '.join(present) or 'none'}") from error


async def delete(client: KubernetesClient, reference: ObjectReference, namespace: str) -> bool:
    """Ask for the deletion of an object; False if it does not exist."""
    place = namespace if reference.is_namespaced else ""
    try:
        await retried(lambda: client.delete(RESOURCES[reference.kind.plural], str(reference.name), place))
    except ApiError as error:
        if is_missing(error):
            return False
        raise
    return True


def rows(kind: CustomResource, documents: Iterable[Document], now: datetime) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table, with the columns that kubectl prints."""
    columns = [column for column in kind.columns if column.priority == 0]
    header = ["Name", *(column.name for column in columns)]
    if kind.scope == "Namespaced":
        header.insert(0, "Namespace")
    table = []
    for document in documents:
        metadata = document["metadata"]
        cells = [metadata["name"]] if kind.scope != "Namespaced" else [metadata["namespace"], metadata["name"]]
        for column in columns:
            value = _value(document, column.path)
            cells.append(_age(value, now) if column.type == "date" and value else "" if value is None else str(value))
        table.append(cells)
    return header, table


def _value(document: Any, path: str) -> Any:
    """The value at a JSON path of a printer column: fields, and one item of a list by the value of a field."""
    for field, key, expected in _FIELD.findall(path):
        if field:
            document = document.get(field) if isinstance(document, dict) else None
        else:
            document = next((item for item in document or () if item.get(key) == expected), None)
    return document


def _age(timestamp: str, now: datetime) -> str:
    seconds = max(0, int((now - datetime.fromisoformat(timestamp).astimezone(UTC)).total_seconds()))
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{seconds // length}{unit}"
