"""`partita model`: looks at models before anything is deployed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from rich import filesize
from rich.console import Console
from rich.table import Table

from partita_api.session.module import DType, HuggingFaceTask, ModelSource, NamedInput, TensorSpec
from partita_operator.cli.errors import BadInput
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_profiling.inspection import ERROR_PREFIX, RESULT_PREFIX, Inspection, InspectionRequest
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.models.policy import VARIABLE, policy_here, policy_text

SUFFIXES: Final = (".onnx", ".pt2", ".pt")
"""Of files with models."""


@click.group()
def model() -> None:
    """Look at models, without a cluster."""


class Shape(click.ParamType[tuple[int, ...]]):
    """Dimensions, separated by commas."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The dimensions. Raises BadParameter."""
        try:
            return TensorSpec(shape=tuple(int(size) for size in str(value).split(","))).shape
        except ValueError:
            self.fail(f"{value!r} is no shape of a sample such as 3,224,224", param, ctx)


class _Input(click.ParamType[NamedInput]):
    """One of several inputs."""

    name = "input"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamedInput:
        """The input. Raises BadParameter."""
        try:
            name, dtype, sizes = str(value).rsplit(":", 2)
            return NamedInput(name=name, dtype=DType(dtype), shape=tuple(int(size) for size in sizes.split(",")))
        except ValueError:
            self.fail(f"{value!r} is no input such as input_ids:INT64:128", param, ctx)


@model.command()
@click.argument("source")
@click.option("--shape", type=Shape(), help="Dimensions of one sample: 3,224,224. Default: as the file declares them.")
@click.option("--dtype", type=click.Choice([*NUMPY_DTYPES]), default=str(DType.FP32), show_default=True)
@click.option(
    "--input",
    "inputs",
    type=_Input(),
    multiple=True,
    help="One of several inputs, as NAME:DTYPE:SIZES: input_ids:INT64:128. Instead of --shape and --dtype.",
)
@click.option("--blocks", type=click.IntRange(1, 20), default=10, show_default=True, help="Most blocks to cut it into.")
@click.option("--hugging-face", is_flag=True, help="SOURCE is a repository of Hugging Face, or a directory of one.")
@click.option("--revision", help="Commit, tag or branch of the repository. Default: main.")
@click.option(
    "--task", type=click.Choice([str(task) for task in HuggingFaceTask]), help="Default: as config.json declares it."
)
@output_option
def inspect(
    source: str,
    shape: tuple[int, ...] | None,
    dtype: str,
    inputs: tuple[NamedInput, ...],
    blocks: int,
    hugging_face: bool,
    revision: str | None,
    task: str | None,
    output: OutputFormat,
) -> None:
    """Show the tensors of SOURCE, and its blocks with their memory, work and cuts.

    SOURCE is a file (.onnx, .pt2, .pt) or an entrypoint (package.module:function), which is called without arguments.
    With --hugging-face it is OWNER/NAME at the hub, which is downloaded, or a directory with config.json and
    safetensors. It is loaded in a process of its own.
    """
    if inputs and shape is not None:
        raise BadInput("--shape is for models of one input; give --input for each of several, or --shape alone")
    one = None if shape is None else TensorSpec(shape=shape, dtype=DType(dtype))
    policy = policy_here()
    if hugging_face:
        if Path(source).is_dir():
            directory = Path(source).resolve()
            source = f"{directory.parent.name}/{directory.name}"
            policy = policy.model_copy(update={"hub_directory": str(directory.parent.parent)})
        model = _repository(source, revision, task)
    elif revision is not None or task is not None:
        raise BadInput("--revision and --task are of a repository; add --hugging-face")
    else:
        model = model_source(source)
    found = inspected(InspectionRequest(model=model, inputs=inputs or one, blocks=blocks), policy_text(policy))

    def text(console: Console) -> None:
        lines = [f"input: {tensors_in_words([found.input])}"] if found.input is not None else []
        lines += [f"input: {tensors_in_words([tensor], [tensor.name])}" for tensor in found.inputs or ()]
        lines += [f"outputs: {tensors_in_words(found.outputs, found.output_names)}"]
        lines += [f"warning: {warning}" for warning in found.warnings]
        console.print("\n".join(lines), markup=False, highlight=False)
        table = Table("block", "time", "MFLOP", "weights", "activations", "behind it", "tensors")
        for number, block in enumerate(found.blocks):
            table.add_row(
                str(number),
                f"{block.share:.1%}",
                f"{block.megaflops:.1f}",
                filesize.decimal(block.memory.weights_bytes),
                filesize.decimal(block.memory.activation_bytes),
                filesize.decimal(block.crossing.bytes),
                tensors_in_words(block.crossing.specs),
            )
        console.print(table)
        console.print(
            "One sample in full precision. Time: the share on a nominal GPU at a batch of 8.", highlight=False
        )

    emit(found.model_dump(mode="json", by_alias=True), output, text)


def model_source(source: str) -> ModelSource:
    """A model from a file or an entrypoint. Raises BadInput for what is neither."""
    try:
        return ModelSource(file=source) if Path(source).suffix in SUFFIXES else ModelSource(entrypoint=source)
    except ValidationError as error:
        raise BadInput(
            f"{source} is no model: name a file ({', '.join(SUFFIXES)}) or an entrypoint (package.module:function)"
        ) from error


def _repository(name: str, revision: str | None, task: str | None) -> ModelSource:
    """Raises BadInput for what is no repository."""
    try:
        return ModelSource(hugging_face=name, revision=revision, task=None if task is None else HuggingFaceTask(task))
    except ValidationError as error:
        raise BadInput(
            f"{name} is no repository of Hugging Face: name OWNER/NAME, or a directory with config.json in a directory"
        ) from error


def inspected(request: InspectionRequest, policy: str) -> Inspection:
    """The result of another process. Raises BadInput with what is wrong with the model."""
    done = subprocess.run(
        [sys.executable, "-m", "partita_profiling.inspection_process"],
        input=request.model_dump_json(by_alias=True),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.getcwd()])),
            VARIABLE: policy,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(RESULT_PREFIX):
            return Inspection.model_validate_json(line.removeprefix(RESULT_PREFIX))
        if line.startswith(ERROR_PREFIX):
            raise BadInput(line.removeprefix(ERROR_PREFIX))
    last = next(iter(done.stderr.strip().splitlines()[-1:]), f"status {done.returncode}")
    raise BadInput(f"the model ended its process: {last}")


def tensors_in_words(specs: Sequence[TensorSpec], names: Sequence[str] = ()) -> str:
    """Element types and dimensions, with names if there are any: `scores: FP32 [3, 224, 224], INT64 [1]`."""
    texts = [f"{spec.dtype} {list(spec.shape)}" for spec in specs]
    return ", ".join([f"{name}: {text}" if name else text for name, text in zip_longest(names, texts, fillvalue="")])
