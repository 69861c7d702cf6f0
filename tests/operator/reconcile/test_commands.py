"""The commands that messages propose: all are collected, and those of `partita` run."""

import shlex
from collections.abc import Mapping
from inspect import getmembers, isfunction
from typing import Any

import pytest
from click.testing import CliRunner
from tests.builders import session
from tests.operator.reconcile.proposed_commands import proposed_commands

from partita_api.inferencesession import InferenceSession
from partita_api.meta import PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_operator.cli.cluster import session_requests
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.cli.main import main
from partita_operator.reconcile import commands

COMMANDS = proposed_commands()


class ApiServerDouble:
    """Has one session with both annotations, and records changes of its annotations."""

    annotated: list[Mapping[str, str | None]]

    def __init__(self, place: ClusterPlace) -> None:
        self.namespace = place.namespace

    def session(self, name: str) -> InferenceSession:
        assert (self.namespace, name) == ("default", "traffic")
        built = session(name).model("detector").build()
        annotations = {PAUSED_ANNOTATION: "load test", ROLLBACK_ANNOTATION: "traffic-0123abcd@1"}
        return built.model_copy(update={"metadata": built.metadata.model_copy(update={"annotations": annotations})})

    def annotate(self, owner: Any, annotations: Mapping[str, str | None]) -> None:
        ApiServerDouble.annotated.append(annotations)


def test_every_command_in_messages_is_collected() -> None:
    functions = {name for name, f in getmembers(commands, isfunction) if not name.startswith("_")}
    assert functions == COMMANDS.keys()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("resume", {PAUSED_ANNOTATION: None}, id="resume"),
        pytest.param("undo_rollback", {ROLLBACK_ANNOTATION: None}, id="undo a rollback"),
    ],
)
def test_commands_of_partita_run(name: str, want: Mapping[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_requests, "ApiServer", ApiServerDouble)
    ApiServerDouble.annotated = []
    kubectl, plugin, *arguments = shlex.split(COMMANDS[name])
    assert (kubectl, plugin) == ("kubectl", "partita")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert ApiServerDouble.annotated == [want]
