"""The group `partita local`."""

import click

from partita_devtools.cli.local.changes import apply, delete
from partita_devtools.cli.local.inspection import describe, get, logs, url
from partita_devtools.cli.local.lifecycle import down, status, up


@click.group()
def local() -> None:
    """Run sessions on this machine without Kubernetes: an embedded API server, Ray and the operator."""


for command in (up, status, down, apply, get, describe, url, delete, logs):
    local.add_command(command)
