"""The `partita` command. Subcommands are imported when they are called, so that each needs only its own extras."""

import importlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import click

from partita_operator.cli.exit_codes import ExitCode

_CLUSTER: Final = "partita_operator.cli.cluster"
_OFFLINE: Final = "partita_operator.cli.offline"

SUBCOMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "crds": ("partita_operator.cli.crds:crds", "Write the CustomResourceDefinitions."),
    "plan": (f"{_OFFLINE}.plan:plan", "Plan sessions from manifests and profiles, without a cluster."),
    "mig": (f"{_OFFLINE}.mig:mig", "Cut GPUs into MIG slices for a load, without a cluster."),
    "subclusters": (f"{_OFFLINE}.subclusters:subclusters", "Spread many models over sub-clusters."),
    "simulate": (f"{_OFFLINE}.simulate:simulate", "Simulate a plan under load, without a cluster."),
    "profile": (
        f"{_OFFLINE}.profile:profile",
        "Time the blocks of a session's models on this machine.",
    ),
    "load": ("partita_operator.cli.load:load", "Send load to a session and measure its attainment."),
    "dev": ("partita_devtools.cli.dev:dev", "Run a control plane and a Ray cluster on this machine."),
    "operator": ("partita_operator.cli.operator:operator", "Run the operator."),
    "explain": (
        f"{_CLUSTER}.explain:explain",
        "Say what serves a session of a cluster, why, and what waits.",
    ),
    "top": (f"{_CLUSTER}.top:top", "Show a cluster's pools and sessions, live."),
    "approve": (f"{_CLUSTER}.session_requests:approve", "Let the plan go that waits for approval."),
    "pause": (f"{_CLUSTER}.session_requests:pause", "Keep what a session serves as it is."),
    "resume": (f"{_CLUSTER}.session_requests:resume", "Undo a pause."),
    "rollback": (f"{_CLUSTER}.session_requests:rollback", "Go back to an earlier plan of a session."),
    "demo": ("partita_devtools.cli.demo:demo", "Serve an example end to end on this machine, and report."),
}

DEVTOOLS: Final = "partita_devtools."
"""Modules of `dev` and `demo`: a distribution of its own, which the operator's image does not have."""

EXTRA_OF_MODULE: Final[Mapping[str, str]] = {
    "torch": "models",
    "ray": "serving",
    "httptools": "serving",
    "aiohttp": "load",
    "httpx": "operator",
    "httpx2": "operator",
    "kopf": "operator",
    "lightkube": "operator",
    "matplotlib": "plots",
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, in the order of SUBCOMMANDS."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported; a missing extra is reported with the command that installs it."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module, attribute = SUBCOMMANDS[cmd_name][0].split(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            package = (missing.name or "").split(".")[0]
            if module.startswith(DEVTOOLS):
                requirement = "partita-devtools"
            elif package in EXTRA_OF_MODULE:
                requirement = f"'partita[{EXTRA_OF_MODULE[package]}]'"
            else:
                raise
            raise click.ClickException(
                f"`partita {cmd_name}` needs {missing.name}; install it with: pip install {requirement}"
            ) from missing
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help for all subcommands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup, epilog=ExitCode.epilog(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("partita"), prog_name="partita")
def main() -> None:
    """Partita serves multi-DNN applications under a latency SLO on heterogeneous GPU pools."""
