"""What a notebook imports from `partita_api`: the examples in the docstrings run."""

import doctest
from types import ModuleType

import pytest

import partita_api
from partita_api.fields import label_selector


@pytest.mark.parametrize("module", [partita_api, label_selector], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_every_exported_name_is_there() -> None:
    assert all(hasattr(partita_api, name) for name in partita_api.__all__)
