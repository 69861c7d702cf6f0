"""Manifests and chart values of the first pages are valid."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.architecture.sources import ROOT

from partita_api import parse_manifests

PAGES = sorted((ROOT / "docs/get-started").glob("*.md"))
SCHEMA = ROOT / "charts/partita/values.schema.json"


def blocks(page: Path) -> list[str]:
    """The YAML blocks of a page, without their indentation in a list."""
    found = re.findall(r"^( *)```yaml\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    return ["\n".join(line.removeprefix(indent) for line in text.splitlines()) for indent, text in found]


def cases(*, manifests: bool) -> list[tuple[str, str]]:
    return [(page.name, text) for page in PAGES for text in blocks(page) if ("apiVersion:" in text) is manifests]


@pytest.mark.parametrize(("page", "text"), cases(manifests=True))
def test_manifests_are_valid(page: str, text: str) -> None:
    found = parse_manifests(text, page)

    assert len(found.pools) == len(found.sessions) == 1


@pytest.mark.parametrize("text", [text for _, text in cases(manifests=False)])
def test_values_are_valid(text: str) -> None:
    """A key that the chart does not know is an error, too."""
    jsonschema.validate(yaml.safe_load(text), json.loads(SCHEMA.read_text()))


def test_the_pages_have_manifests_and_values() -> None:
    assert len(cases(manifests=True)) == 2
    assert len(cases(manifests=False)) == 2
