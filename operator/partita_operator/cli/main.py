"""The `partita` command. Subcommands are imported when they are called, so that each needs only its own extras."""

import importlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import click

from partita_operator.cli.exit_codes import ExitCode

SUBCOMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "crds": ("partita_operator.cli.crds:crds", "Write the CustomResourceDefinitions."),
    "plan": ("partita_operator.cli.plan:plan", "Plan sessions from manifests and profiles, without a cluster."),
    "mig": ("partita_operator.cli.mig:mig", "Cut GPUs into MIG slices for a load, without a cluster."),
    "subclusters": ("partita_operator.cli.subclusters:subclusters", "Spread many models over sub-clusters."),
    "simulate": ("partita_operator.cli.simulate:simulate", "Simulate a plan under load, without a cluster."),
    "profile": ("partita_operator.cli.profile:profile", "Time the blocks of a session's models on this machine."),
    "load": ("partita_operator.cli.load:load", "Send load to a session and measure its attainment."),
    "dev": ("partita_operator.cli.dev:dev", "Run a control plane and a Ray cluster on this machine."),
    "operator": ("partita_operator.cli.operator:operator", "Run the operator."),
    "explain": ("partita_operator.cli.explain:explain", "Say what serves a session of a cluster, why, and what waits."),
    "top": ("partita_operator.cli.top:top", "Show a cluster's pools and sessions, live."),
    "approve": ("partita_operator.cli.session_requests:approve", "Let the plan go that waits for approval."),
    "pause": ("partita_operator.cli.session_requests:pause", "Keep what a session serves as it is."),
    "resume": ("partita_operator.cli.session_requests:resume", "Undo a pause."),
    "rollback": ("partita_operator.cli.session_requests:rollback", "Go back to an earlier plan of a session."),
    "demo": ("partita_operator.cli.demo:demo", "Serve an example end to end on this machine, and report."),
}

EXTRA_OF_MODULE: Final[Mapping[str, str]] = {
    "torch": "models",
    "ray": "serving",
    "httptools": "serving",
    "aiohttp": "load",
    "httpx": "operator",
    "httpx2": "operator",
    "kopf": "operator",
    "lightkube": "operator",
    "cryptography": "demo",
    "jinja2": "demo",
    "matplotlib": "demo",
    "skimage": "demo",
    "transformers": "demo",
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
            extra = EXTRA_OF_MODULE.get((missing.name or "").split(".")[0])
            if extra is None:
                raise
            raise click.ClickException(
                f"`partita {cmd_name}` needs {missing.name}; install it with: pip install 'partita[{extra}]'"
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
