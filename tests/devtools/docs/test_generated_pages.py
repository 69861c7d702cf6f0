"""The generated reference has every field, value, command and public name."""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from tests.architecture.sources import ROOT

from partita_api.crd_schema import KINDS, CustomResource, crd
from partita_devtools.docs.api_fields import kind_page
from partita_devtools.docs.chart_values import chart_values, values_page
from partita_devtools.docs.command_line import command_page
from partita_devtools.docs.markdown import cell
from partita_devtools.docs.pages import PACKAGES, copied_pages
from partita_devtools.docs.python_api import docstring, package_page, signature

VALUES = """\
# Pods.
replicas: 2
ray:
  # Where Ray
  # listens.
  address: http://ray
  env: {a: 1}
  rules:
    - weight: 1
      when:
        name: a
"""


def field_names(schema: dict[str, Any]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield name
        yield from field_names(field)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from field_names(inner)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_page_of_a_kind_has_every_field(kind: CustomResource) -> None:
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    page = kind_page(kind)

    rows = re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE)
    assert sorted(rows[2:]) == sorted([*field_names(schema["spec"]), *field_names(schema["status"])])


def test_a_field_has_type_default_and_limits() -> None:
    (session,) = [kind for kind in KINDS if kind.name == "InferenceSession"]
    page = kind_page(session)

    assert "| `slo` (required) | [object](#spec-slo) |" in page
    assert "| `priority` | integer | `0` |" in page
    assert "| `dtype` | string | `FP32` | Element type. " in page, "of a field in a list, too"
    assert "One of `Declared`, `Observed`." in page
    assert "#### `spec.modules[].model` {#spec-modules-model}" in page


def test_values_have_path_default_and_comment() -> None:
    found = [(value.path, value.default, value.comment, value.is_section) for value in chart_values(VALUES)]
    rules = [{"weight": 1, "when": {"name": "a"}}]

    assert found == [
        ("replicas", 2, "Pods.", False),
        ("ray", {"address": "http://ray", "env": {"a": 1}, "rules": rules}, "", True),
        ("ray.address", "http://ray", "Where Ray listens.", False),
        ("ray.env", {"a": 1}, "", False),
        ("ray.rules", rules, "", False),
    ]


def test_the_page_of_the_chart_has_every_section() -> None:
    text = (ROOT / "charts/partita/values.yaml").read_text()
    page = values_page(text)

    assert {name for name in yaml.safe_load(text) if f"`{name}`" not in page} == set()


def test_pages_that_a_value_names_are_links() -> None:
    page = values_page("# Off; see docs/tasks/admission.md.\nadmission: false\n")

    assert "Off; see [admission](../tasks/admission.md)." in page


def test_the_page_of_a_command_has_its_subcommands_and_options() -> None:
    @click.group()
    def root() -> None:
        """Does things."""

    @root.command(epilog="The end.")
    @click.argument("file")
    @click.option("--mode", type=click.Choice(["a", "b"]), default="a", show_default=True, help="How [it] works.")
    def run(file: str, mode: str) -> None:
        """Run it.

        \b
        as
        written
        """

    page = command_page(root, "tool")

    assert "### `tool run` {#tool-run}" in page
    assert "```text\ntool run [OPTIONS] FILE\n```" in page
    assert r"| `--mode [a|b]` | How \[it\] works. \[default: a\] |" in page
    assert "```text\nas\nwritten\n```" in page
    assert "The end." in page


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_of_a_package_has_every_public_name(package: str) -> None:
    page = package_page(package)

    names = re.findall(r"^## `(\w+)`", page, re.MULTILINE)
    assert sorted(names) == sorted(importlib.import_module(package).__all__)


def test_doctests_become_blocks_of_code() -> None:
    def documented() -> None:
        """Adds.

        >>> 1 + 1
        2

        The end.
        """

    assert docstring(documented) == "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThe end."


def test_long_signatures_have_one_parameter_on_a_line() -> None:
    def short(self: object, a: int, b: str = "x") -> None: ...
    def long(first_long_parameter: int, second_long_parameter: str, third_long_parameter: dict[str, int]) -> int: ...
    def named(
        first_long_parameter: int, *, second_long_parameter: str, third_long_parameter: dict[str, int]
    ) -> None: ...

    assert signature("short", short, bound=True) == "short(a: int, b: str = 'x')"
    assert signature("long", long).splitlines()[1] == "    first_long_parameter: int,"
    assert signature("long", long).endswith("\n) -> int")
    assert signature("named", named).splitlines()[1:3] == ["    first_long_parameter: int,", "    *,"]
    assert signature("named", named).endswith("\n)")


def test_types_are_as_a_reader_writes_them() -> None:
    """Without pydantic's limits, quotes and memory addresses; an alias is its type."""
    api, planner = package_page("partita_api"), package_page("partita_planner")
    simulation = package_page("partita_runtime.simulation")

    assert "| `pools` | `tuple[str, ...]` |" in api
    assert "FieldInfo" not in api
    assert "with_rate(rate: float) -> PlanningProblem" in planner
    assert "clock: Callable[[], float] = monotonic" in planner
    assert "Arrivals = Callable[" in simulation


def test_the_page_of_the_license_has_the_text_as_it_is() -> None:
    assert (ROOT / "LICENSE").read_text().strip("\n") in copied_pages(ROOT)["contribute/license.md"]


def test_cells_are_one_line_without_markup() -> None:
    assert cell("a | b\n<c> `d|e` *f*") == r"a \| b &lt;c> `d|e` \*f\*"
