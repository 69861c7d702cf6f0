"""Messages to users name chart keys, which exist, and no environment variables."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.chart.charts import CHART

import partita_operator
import partita_runtime
from partita_operator.settings.fields import all_settings

OPERATOR = Path(partita_operator.__file__).parent
RUNTIME = Path(next(iter(partita_runtime.__path__)))
ABOUT_VARIABLES = {"settings/fields.py", "cli/settings_options.py"}
"""Modules that make the names of variables or explain them."""
CHART_KEY = re.compile(r"\b([a-z]\w*(?:\.\w+)+)(?: of the chart| in the chart)")


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, text) of every string in the modules of a folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(folder)), node.value


def has(values: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def test_no_message_of_the_operator_names_an_environment_variable() -> None:
    found = {(file, text) for file, text in texts(OPERATOR) if "PARTITA_" in text and file not in ABOUT_VARIABLES}
    assert found == set()


@pytest.mark.parametrize("folder", [OPERATOR, RUNTIME], ids=["operator", "runtime"])
def test_chart_keys_in_messages_exist(folder: Path) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    named = {key for _, text in texts(folder) for key in CHART_KEY.findall(text)}
    assert named, "messages name chart keys"
    assert {key for key in named if not has(defaults, key)} == set()


def test_the_page_on_settings_lists_every_secret() -> None:
    page = (CHART.parents[1] / "docs" / "reference" / "settings.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \| `(PARTITA_\w+)` \|", page, flags=re.MULTILINE))
    assert listed == {(setting.key, setting.variable) for setting in all_settings() if setting.secret is not None}


def test_variables_that_the_chart_and_the_development_tools_set_exist() -> None:
    root = CHART.parents[1]
    files = [*(root / "devtools").rglob("*.py"), root / "tests/e2e/conftest.py", *(CHART / "templates").iterdir()]
    named = {name for path in files for name in re.findall(r"\bPARTITA_OPERATOR__[A-Z]\w+", path.read_text())}
    assert named, "they set variables"
    assert named <= {setting.variable for setting in all_settings()}
