"""Objects as YAML files: objects/<plural>/<namespace>/<name>.yaml, or objects/<plural>/<name>.yaml."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from partita_devtools.api_server.kinds import KINDS, Document, ServedKind
from partita_devtools.api_server.store import Place
from partita_devtools.errors import DevError

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DRAFT: Final = ".draft"


class ObjectFiles:
    """The files below one directory. A file is replaced in one step, so a crash leaves the old or the new object."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, place: Place, document: Document) -> None:
        """Write or replace an object. Raises OSError; the old file stays then."""
        path = self.path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}{_DRAFT}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                yaml.dump(document, file, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def delete(self, place: Place) -> None:
        """Delete an object. Raises OSError."""
        self.path(place).unlink(missing_ok=True)

    def path(self, place: Place) -> Path:
        """The file of an object."""
        _, plural, namespace, name = place
        return self.directory / plural / namespace / f"{name}.yaml"

    def load(self) -> Iterator[tuple[Place, Document]]:
        """All objects. Raises DevError with the name of a file that holds none, and what to do."""
        for kind in KINDS.values():
            pattern = "*/*.yaml" if kind.namespaced else "*.yaml"
            for path in sorted((self.directory / kind.plural).glob(pattern)):
                namespace = path.parent.name if kind.namespaced else ""
                yield (kind.api_version, kind.plural, namespace, path.stem), _read(path, kind)


def _read(path: Path, kind: ServedKind) -> Document:
    try:
        with path.open(encoding="utf-8") as file:
            document = yaml.load(file, Loader=_Loader)
        found: Document = document
        if found["kind"] == kind.kind and found["metadata"]["uid"] and found["metadata"]["name"] == path.stem:
            return found
        problem = f"it is not a {kind.kind} with this name"
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    raise DevError(
        f"{path} does not hold a complete object ({problem}). Move the file away, start again, and apply its manifest"
    )
