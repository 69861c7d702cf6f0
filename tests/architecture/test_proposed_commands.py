"""Commands in messages: those of `partita` exist with their options, and every other one has a test that runs it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from tests.architecture.sources import ROOT, source_files, syntax, texts

from partita_operator.cli.main import SUBCOMMANDS, main

PARTITA: Final = re.compile(rf"\bpartita ((?:{'|'.join(SUBCOMMANDS)})\b[^`|;\n]*)")
OTHER: Final = re.compile(
    r"""
    \bkubectl\ (?:get(?!`)|apply|annotate|auth|cluster-info|delete|describe|label|logs|partita|patch|scale|version)\b
    | \|\ kubectl\b
    | \bhelm\ (?:install|list|upgrade)\b
    | \b(?:apt-get|pip)\ install\b
    | \bray\ (?:start|status)\b
    | \bps\ -?[a-z]+\s
    | \bdf\ -
    """,
    re.VERBOSE,
)
RUN_BY: Final = {
    "operator/partita_operator/reconcile/commands.py": "operator/handlers/test_proposed_commands.py",
    "operator/partita_operator/reconcile/pool/accelerator_count.py": "operator/handlers/pools/test_device_pools.py",
    "operator/partita_operator/engines/kuberay/state.py": "operator/handlers/test_proposed_commands.py",
    "operator/partita_operator/engines/kuberay/authentication.py": "operator/engines/kuberay/test_on_api_server.py",
    "operator/partita_operator/kube/resources.py": "operator/handlers/test_proposed_commands.py",
    "operator/partita_operator/cli/offline/mig.py": "operator/handlers/test_proposed_commands.py",
    "operator/partita_operator/engines/rollout.py": "operator/engines/ray/test_engine.py",
    "operator/partita_operator/cli/doctor/cluster_checks.py": "operator/cli/doctor/test_doctor_cluster.py",
    "operator/partita_operator/cli/doctor/machine_checks.py": "operator/cli/doctor/test_machine_checks.py",
    "devtools/partita_devtools/checks.py": "devtools/test_checks.py",
    "devtools/partita_devtools/demo/machine.py": "devtools/demo/test_machine.py",
    "devtools/partita_devtools/machine/processes.py": "devtools/machine/test_processes.py",
    "devtools/partita_devtools/nodes/debian_packages.py": "devtools/cli/test_nodes_command.py",
    "devtools/partita_devtools/release/programs.py": "devtools/release/test_release.py",
    "runtime/partita_runtime/serving/protocol/triton.py": "docs/test_session_pages.py",
}
"""Tests by the module whose messages propose a command of another program; the tests are below tests/."""


def messages(file: Path) -> Iterator[str]:
    """The strings of a module without its docstrings."""
    docstrings = {
        node.value.value
        for node in ast.walk(syntax(file))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return (text for text in texts(file) if text not in docstrings)


COMMANDS: Final = [
    pytest.param(command.strip(), id=f"{file.relative_to(ROOT)}: {command.strip()}")
    for file in source_files()
    for text in messages(file)
    for command in PARTITA.findall(text)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_proposed_subcommands_and_options_exist(command: str) -> None:
    found: click.Command = main
    context = click.Context(main)
    for word in re.findall(r"[\w./-]+", command):
        if isinstance(found, click.Group) and not word.startswith("-"):
            below = found.get_command(context, word)
            assert below is not None, f"{found.name} has no {word}"
            found = below
        elif word.startswith("--") and word != "--help":
            assert word in {option for parameter in found.params for option in parameter.opts}, word


def test_all_other_commands_are_run_by_a_test() -> None:
    proposing = {str(file.relative_to(ROOT)) for file in source_files() if any(map(OTHER.search, messages(file)))}

    assert proposing == RUN_BY.keys()
    assert all((ROOT / "tests" / test).is_file() for test in RUN_BY.values())
