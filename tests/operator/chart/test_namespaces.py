"""Which namespaces an installation serves: some that the values name, or all, which is a choice of its own."""

import shlex
from typing import Any

import pytest
import yaml
from tests.operator.chart.charts import config_file, documents, files

errors = pytest.importorskip("helm_python.errors", reason="Helm's SDK is missing: pip install helm-python-sdk")


def notes(values: dict[str, Any]) -> str:
    """What Helm prints after an installation."""
    return files(values)["partita/templates/NOTES.txt"]


@pytest.mark.parametrize(
    ("values", "want_served", "want_notes"),
    [
        pytest.param({}, ["default"], "of namespace default, and ignores others", id="by default"),
        pytest.param(
            {"namespaces": ["team-a", "team-b"]}, ["team-a", "team-b"], "of namespaces team-a, team-b, and", id="two"
        ),
        pytest.param({"scope": "Cluster"}, [], "of all namespaces. Who takes over", id="all"),
        pytest.param({"scope": "Cluster", "namespaces": []}, [], "of all namespaces", id="all, and none is named"),
    ],
)
def test_the_operator_the_roles_and_the_notes_agree(
    values: dict[str, Any], want_served: list[str], want_notes: str
) -> None:
    assert yaml.safe_load(config_file(values))["namespaces"] == want_served
    roles = {o["metadata"]["namespace"] for o in documents(values) if (o["kind"], o["metadata"]["name"]) == ROLE}
    assert roles == {*want_served}
    assert want_notes in notes(values)


ROLE = ("Role", "partita")


def test_no_namespace_is_not_taken_for_all() -> None:
    with pytest.raises(errors.HelmRenderError, match=r"such as \[default\], or set scope to Cluster"):
        documents({"namespaces": []})


@pytest.mark.parametrize("served", [["default"], ["team-b", "team-c"]], ids=["one", "two"])
def test_the_command_of_the_notes_adds_a_namespace(served: list[str]) -> None:
    (command,) = [line for line in notes({"namespaces": served}).splitlines() if "helm upgrade" in line]
    words = shlex.split(command)
    assert words[:6] == ["helm", "upgrade", "partita", "charts/partita", "--namespace", "partita-system"]
    assert words[6:] == ["--reuse-values", "--set", f"namespaces={{{','.join([*served, 'team-a'])}}}"]
