"""Label and field selectors of list and watch requests."""

import re
from collections.abc import Callable
from typing import Any, Final

from partita_api.fields.label_selector import LabelSelectorRequirement, SelectorOperator

Document = dict[str, Any]

_REQUIREMENT: Final = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s+(?P<set>in|notin)\s*\((?P<values>[^)]*)\)"
    r"|(?P<field>[\w./-]+)\s*(?P<sign>==|!=|=)\s*(?P<value>[^,\s=]*)"
    r"|(?P<not>!)?\s*(?P<label>[\w./-]+))\s*(?:,|$)"
)


class BadSelectorError(ValueError):
    """A selector that cannot be read; the message quotes it."""


def selects(labels: str, fields: str) -> Callable[[Document], bool]:
    """Whether an object matches a label selector and a field selector; empty ones match all. Raises BadSelectorError.

    Field selectors compare for equality only, as in Kubernetes.
    """
    label_requirements = _requirements(labels)
    field_requirements = _requirements(fields)
    for requirement in field_requirements:
        if not requirement.operator.takes_values:
            raise BadSelectorError(f"{fields!r} is not a field selector: compare each field with = or !=")

    def matches(document: Document) -> bool:
        present = document["metadata"].get("labels") or {}
        return all(r.matches(present) for r in label_requirements) and all(
            r.matches({r.key: _field(document, r.key)}) for r in field_requirements
        )

    return matches


def _requirements(selector: str) -> list[LabelSelectorRequirement]:
    found: list[LabelSelectorRequirement] = []
    position = 0
    while position < len(selector):
        match = _REQUIREMENT.match(selector, position)
        if match is None or match.end() == position:
            raise BadSelectorError(f"{selector!r} is not a selector: it cannot be read from {selector[position:]!r} on")
        found.append(_requirement(match))
        position = match.end()
    return found


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    if match["key"]:
        operator = SelectorOperator.IN if match["set"] == "in" else SelectorOperator.NOT_IN
        values = tuple(value.strip() for value in match["values"].split(","))
        return LabelSelectorRequirement(key=match["key"], operator=operator, values=values)
    if match["field"]:
        operator = SelectorOperator.NOT_IN if match["sign"] == "!=" else SelectorOperator.IN
        return LabelSelectorRequirement(key=match["field"], operator=operator, values=(match["value"],))
    operator = SelectorOperator.DOES_NOT_EXIST if match["not"] else SelectorOperator.EXISTS
    return LabelSelectorRequirement(key=match["label"], operator=operator)


def _field(document: Any, path: str) -> str:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return "" if document is None else str(document)
