"""The `partita` command. It imports a subcommand when it is called, so each one needs only its own extras."""

import errno
import importlib
import importlib.util
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_runtime.installation import devtools_command, extra_command

_CLUSTER: Final = "partita_operator.cli.cluster"
_OFFLINE: Final = "partita_operator.cli.offline"

SUBCOMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "crds": ("partita_operator.cli.crds:crds", "Write the CustomResourceDefinitions."),
    "plan": (f"{_OFFLINE}.plan:plan", "Plan sessions from manifests and profiles, without a cluster."),
    "mig": (f"{_OFFLINE}.mig:mig", "Partition GPUs into MIG slices for a load, without a cluster."),
    "subclusters": (
        f"{_OFFLINE}.subclusters:subclusters",
        "Distribute many models over sub-clusters, without a cluster.",
    ),
    "simulate": (f"{_OFFLINE}.simulate:simulate", "Simulate a plan under load, without a cluster."),
    "profile": (
        f"{_OFFLINE}.profile:profile",
        "Measure the blocks of a session's models on this machine.",
    ),
    "model": (f"{_OFFLINE}.model:model", "Look at a model's tensors, blocks and cuts, without a cluster."),
    "init": (f"{_OFFLINE}.init:init", "Write the manifest of a session for a model, without a cluster."),
    "load": ("partita_operator.cli.load:load", "Send load to a session and measure its attainment."),
    "quality": (f"{_OFFLINE}.quality:quality", "Compare a session's answers with those that are expected."),
    "doctor": (
        "partita_operator.cli.doctor.command:doctor",
        "Check this machine and a cluster for what is missing or wrong.",
    ),
    "completion": ("partita_operator.cli.completion:completion", "Print a script that completes commands in a shell."),
    "local": ("partita_devtools.cli.local.group:local", "Run sessions on this machine without Kubernetes."),
    "dev": ("partita_devtools.cli.dev:dev", "Run a control plane and a Ray cluster on this machine."),
    "operator": ("partita_operator.cli.operator:operator", "Run the operator."),
    "explain": (
        f"{_CLUSTER}.explain:explain",
        "Explain a session's current and pending plan.",
    ),
    "top": (f"{_CLUSTER}.top:top", "Show a cluster's pools and sessions, live."),
    "console": (f"{_CLUSTER}.console:console", "Serve a read-only web page of a cluster's pools, sessions and plans."),
    "approve": (f"{_CLUSTER}.session_requests:approve", "Approve the pending plan of a session."),
    "pause": (f"{_CLUSTER}.session_requests:pause", "Keep a session's plan and replicas as they are."),
    "resume": (f"{_CLUSTER}.session_requests:resume", "End a pause."),
    "rollback": (f"{_CLUSTER}.session_requests:rollback", "Return to an earlier plan of a session."),
    "reprofile": (f"{_CLUSTER}.reprofile:reprofile", "Profile a session's models again."),
    "demo": ("partita_devtools.cli.demo:demo", "Serve an example end to end on this machine, and report."),
}

DEVTOOLS: Final = "partita_devtools"
"""The package of `local`, `dev` and `demo`. It is a separate distribution, which the operator's image does not have."""

EXTRA_OF_MODULE: Final[Mapping[str, str]] = {
    "torch": "models",
    "ray": "serving",
    "httptools": "serving",
    "aiohttp": "load",
    "httpx": "operator",
    "jinja2": "operator",
    "kopf": "operator",
    "kubernetes": "operator",
    "matplotlib": "plots",
    "pydantic_settings": "operator",
}


FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk or a file that is full. They have no name of a file."""


class LazyGroup(click.Group):
    """A group that imports its commands on first use."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand.

        Ctrl-C ends it with one line and the exit code INTERRUPTED. Raises BadInput for a file that cannot be read or
        written.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise SystemExit(ExitCode.INTERRUPTED) from None
        except OSError as error:
            if error.filename is not None:
                raise BadInput(f"{error.filename} cannot be read or written: {error.strerror}") from error
            if error.errno in FULL:
                raise BadInput(f"the output cannot be written: {error.strerror}") from error
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands that are installed, in the order of SUBCOMMANDS."""
        return [name for name, (target, _) in SUBCOMMANDS.items() if _is_installed(target)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand. Raises ClickException with the command that installs a missing extra."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module, attribute = SUBCOMMANDS[cmd_name][0].split(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            if ctx.resilient_parsing:  # a shell asks for completions
                return None
            package = (missing.name or "").split(".")[0]
            if module.startswith(DEVTOOLS):
                install = devtools_command()
            elif package in EXTRA_OF_MODULE:
                install = extra_command(EXTRA_OF_MODULE[package])
            else:
                raise
            raise click.ClickException(
                f"`partita {cmd_name}` needs {missing.name}; install it with: {install}"
            ) from missing
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands and options that begin with `incomplete`, without importing the subcommands."""
        commands = [CompletionItem(name, help=SUBCOMMANDS[name][1]) for name in self.list_commands(ctx)]
        options = super(click.Group, self).shell_complete(ctx, incomplete)
        return [command for command in commands if command.value.startswith(incomplete)] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help for the subcommands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name][1]) for name in self.list_commands(ctx)])


def _is_installed(target: str) -> bool:
    return not target.startswith(DEVTOOLS) or importlib.util.find_spec(DEVTOOLS) is not None


@click.group(cls=LazyGroup, epilog=ExitCode.epilog(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("partita"), prog_name="partita")
def main() -> None:
    """Partita serves multi-DNN applications under a latency SLO on heterogeneous GPU pools."""
