"""YAML on the pages: manifests, parts of sessions, and values of the chart are valid."""

import json
from typing import Any, Final

import jsonschema
import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.docs.pages import Block, all_blocks
from tests.operator.kubectl import session

from partita_api.inferencesession import InferenceSession
from partita_api.manifests import parse_manifests
from partita_api.session.edge import Edge
from partita_api.session.module import Module

SCHEMA: Final = json.loads((ROOT / "charts/partita/values.schema.json").read_text())
OTHER_FILES: Final = {"docs/tasks/subclusters.md": "models", "docs/tasks/monitoring.md": "scrape_configs"}
"""The first key of files that are neither manifests nor values, by page. The test of the page's commands reads them."""


def is_manifest(document: Any) -> bool:
    return isinstance(document, dict) and "apiVersion" in document


def cases(*, manifests: bool) -> list[Block]:
    found = [block for block in all_blocks("yaml") if next(iter(parsed(block)[0])) != OTHER_FILES.get(block.page)]
    return [block for block in found if is_manifest(parsed(block)[0]) is manifests]


def parsed(block: Block) -> list[Any]:
    return list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", cases(manifests=True), ids=str)
def test_manifests_are_valid(block: Block) -> None:
    found = parse_manifests(block.text, str(block))

    assert all(is_manifest(document) for document in parsed(block))
    assert len(found.pools) + len(found.sessions) + len(found.plans) + len(found.others) == len(parsed(block))


@pytest.mark.parametrize("block", cases(manifests=False), ids=str)
def test_parts_and_values_are_valid(block: Block) -> None:
    """A key that is not known is an error, too."""
    (document,) = parsed(block)
    match document:
        case {"spec": spec, **others}:
            assert not others, "a manifest needs apiVersion"
            InferenceSession.model_validate(session("traffic", **spec))
        case {"model": model}:
            Module.model_validate({"name": "detector", "model": model, "input": {"shape": [3, 224, 224]}})
        case [{"from": _}, *_]:
            for edge in document:
                Edge.model_validate(edge)
        case [*modules]:
            for module in modules:
                model = (
                    {}
                    if {"function", "endpoint"} & module.keys()
                    else {"model": {"entrypoint": "traffic.models:detector"}}
                )
                Module.model_validate({**model, **module})
        case values:
            jsonschema.validate(values, SCHEMA)


def test_the_pages_have_manifests_and_parts() -> None:
    assert len(cases(manifests=True)) > 2
    assert len(cases(manifests=False)) > 10
