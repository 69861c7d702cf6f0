"""`partita init`: writes the first manifest of a session for a model."""

import hashlib
from pathlib import Path
from typing import Final

import click

from partita_api.manifests import ManifestError, parse_manifests
from partita_api.meta import is_session_name
from partita_api.session.module import DType, ModelSource, TensorSpec
from partita_operator.cli.errors import BadInput
from partita_operator.cli.offline.first_manifest import (
    DEFAULT_RATE,
    DEFAULT_SLO_MS,
    LONGEST_NAME,
    FirstSession,
    name_from,
)
from partita_operator.cli.offline.model import Shape, inspected, model_source, tensors_in_words
from partita_operator.cli.output import report, writing
from partita_profiling.inspection import InspectionRequest
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.models.policy import policy_here, policy_text

_REMOTE: Final = "://"


@click.command()
@click.argument("source")
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
@click.option("--shape", type=Shape(), help="Dimensions of one sample: 3,224,224. Default: as the file declares them.")
@click.option("--dtype", type=click.Choice([*NUMPY_DTYPES]), default=str(DType.FP32), show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: print it.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init(
    source: str,
    name: str | None,
    slo_ms: int | None,
    rate: int | None,
    shape: tuple[int, ...] | None,
    dtype: str,
    out: Path | None,
    force: bool,
) -> None:
    """Write a session's manifest for the model in SOURCE: a file (.onnx, .pt2, .pt) or package.module:function.

    The model is loaded in a process of its own, as `partita model inspect` does. The manifest marks what has to be
    checked.
    """
    if out is not None and out.exists() and not force:
        raise BadInput(f"{out} exists; write to another file, or overwrite it with --force")
    chosen, model = _name(name, source), _model(source)
    spec = None if shape is None else TensorSpec(shape=shape, dtype=DType(dtype))
    found = inspected(InspectionRequest(model=model, inputs=spec, blocks=1), policy_text(policy_here()))
    if found.input is None:
        raise BadInput(f"{source} takes several inputs; write its module with inputs, as docs/tasks/models.md shows")
    text = FirstSession(
        name=chosen,
        model=model,
        input=found.input,
        outputs=tensors_in_words(found.outputs),
        digest=_digest(model),
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


def _name(name: str | None, source: str) -> str:
    """Raises BadInput for a name that a session and its module cannot have."""
    chosen = name or name_from(source)
    if len(chosen) > LONGEST_NAME or not is_session_name(chosen):
        raise BadInput(
            f"{chosen!r} is no name for a session; give one with --name, of at most {LONGEST_NAME} lower-case letters, "
            "digits and dashes"
        )
    return chosen


def _model(source: str) -> ModelSource:
    """The model with the whole path of its file: replicas run in other directories."""
    model = model_source(source)
    if model.file is None or _REMOTE in model.file:
        return model
    return ModelSource(file=str(Path(model.file).absolute()))


def _digest(model: ModelSource) -> str | None:
    """The SHA-256 of the model's file, if it is on this machine."""
    if model.file is None or _REMOTE in model.file:
        return None
    with Path(model.file).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(text: str) -> None:
    """Raises BadInput if the manifest could not be applied, such as for a path that is too long."""
    try:
        parse_manifests(text, "the manifest")
    except ManifestError as error:
        raise BadInput(str(error)) from error
