"""`partita init`: writes the first manifest of a session for a model."""

from pathlib import Path
from typing import Final

import click

from partita_api.manifests import ManifestError, parse_manifests
from partita_api.meta import is_session_name
from partita_api.session.module import ModelSource
from partita_operator.cli.errors import BadInput
from partita_operator.cli.offline.first_manifest import (
    DEFAULT_RATE,
    DEFAULT_SLO_MS,
    LONGEST_NAME,
    FirstSession,
    name_from,
)
from partita_operator.cli.offline.model import inspected, tensors_in_words
from partita_operator.cli.offline.model_options import ChosenModel, model_options
from partita_operator.cli.output import report, writing

_REMOTE: Final = "://"


@click.command()
@model_options
@click.option("--name", help="Name of the session and its module. Default: from SOURCE.")
@click.option(
    "--slo-ms",
    type=click.IntRange(1, 600_000),
    help=f"Latency SLO. Default: {DEFAULT_SLO_MS}, marked in the manifest.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 10_000_000),
    help=f"Requests per second to plan for. Default: {DEFAULT_RATE}, marked in the manifest.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: print it.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init(
    chosen: ChosenModel, name: str | None, slo_ms: int | None, rate: int | None, out: Path | None, force: bool
) -> None:
    """Write a session's manifest for the model in SOURCE.

    SOURCE is a file (.onnx, .pt2, .pt) or an entrypoint (package.module:function). With --hugging-face it is OWNER/NAME
    at the hub, or a directory of one. It is loaded in a process of its own, as `partita model inspect` does. The
    manifest marks what has to be checked.
    """
    if out is not None and out.exists() and not force:
        raise BadInput(f"{out} exists; write to another file, or overwrite it with --force")
    name = _name(name, chosen)
    found = inspected(chosen, blocks=1)
    model = _with_whole_path(chosen.model)
    text = FirstSession(
        name=name,
        model=model,
        inputs=found.input or found.inputs or (),
        outputs=tensors_in_words(found.outputs, found.output_names),
        content=found.content,
        slo_ms=slo_ms,
        requests_per_second=rate,
    ).text()
    _check(text)
    for warning in found.warnings:
        report(f"warning: {warning}")
    if out is None:
        click.echo(text, nl=False)
        return
    with writing(out), out.open("w" if force else "x") as file:
        file.write(text)
    report(f"{out} is written")


def _name(name: str | None, chosen: ChosenModel) -> str:
    """Raises BadInput for a name that a session and its module cannot have."""
    name = name or name_from(chosen.model)
    if len(name) > LONGEST_NAME or not is_session_name(name):
        raise BadInput(
            f"{name!r} is no name for a session; give one with --name, of at most {LONGEST_NAME} lower-case letters, "
            "digits and dashes"
        )
    return name


def _with_whole_path(model: ModelSource) -> ModelSource:
    """Replicas run in other directories."""
    if model.file is None or _REMOTE in model.file:
        return model
    return model.model_copy(update={"file": str(Path(model.file).absolute())})


def _check(text: str) -> None:
    """Raises BadInput if the manifest could not be applied, such as for a path that is too long."""
    try:
        parse_manifests(text, "the manifest")
    except ManifestError as error:
        raise BadInput(str(error)) from error
