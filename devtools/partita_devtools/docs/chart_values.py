"""The reference of the chart: every value with its default and the comment above it in `values.yaml`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from partita_devtools.docs.markdown import anchor, code, heading, page, prose, table

_KEY: Final = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):")
_COMMENT: Final = re.compile(r"^ *# ?(?P<text>.*)$")


@dataclass(frozen=True)
class Value:
    """One key of the values, with its dotted path."""

    path: str
    comment: str
    default: Any
    is_section: bool
    """Whether the keys below it are listed, too."""


def chart_values(text: str) -> list[Value]:
    """The keys of a `values.yaml` in its order. Keys inside lists and inside `{...}` are part of a default."""
    defaults: Mapping[str, Any] = yaml.safe_load(text)
    comments = {path: comment for path, comment in _comments(text).items() if not _is_in_list(defaults, path)}
    sections = {path.rpartition(".")[0] for path in comments}
    return [Value(path, comment, _at(defaults, path), path in sections) for path, comment in comments.items()]


def values_page(text: str) -> str:
    """The page of all values: one table for the values at the top, then one for each section."""
    values = chart_values(text)
    top = [value for value in values if "." not in value.path and not value.is_section]
    sections = [value for value in values if "." not in value.path and value.is_section]
    return page(
        "# Chart values",
        "The values of `charts/partita`. Those marked as a setting are [settings of the operator](settings.md).",
        heading(2, "General", "general"),
        _table(top),
        *(
            page(
                heading(2, code(section.path), anchor(section.path)),
                prose(section.comment),
                _table([value for value in values if value.path.startswith(f"{section.path}.")]),
            ).rstrip()
            for section in sections
        ),
    )


def _table(values: list[Value]) -> str:
    rows = [
        [code(value.path), "" if value.is_section else code(json.dumps(value.default)), prose(value.comment)]
        for value in values
        if value.comment or not value.is_section
    ]
    return table(["value", "default", "description"], rows)


def _comments(text: str) -> dict[str, str]:
    """The comment above each key, by dotted path."""
    found: dict[str, str] = {}
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        if comment := _COMMENT.match(line):
            above.append(comment["text"])
            continue
        if key := _KEY.match(line):
            indent = len(key["indent"])
            parents = [*(parent for parent in parents if parent[0] < indent), (indent, key["key"])]
            found[".".join(name for _, name in parents)] = " ".join(above)
        above = []
    return found


def _is_in_list(values: Mapping[str, Any], path: str) -> bool:
    found: Any = values
    for name in path.split("."):
        if isinstance(found, list):
            return True
        found = found[name]
    return False


def _at(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for name in path.split("."):
        found = found[name]
    return found
