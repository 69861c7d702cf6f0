"""Which model a command is about: SOURCE and the options beside it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from partita_api.session.module import DType, HuggingFaceTask, Inputs, ModelSource, NamedInput, TensorSpec
from partita_operator.cli.errors import BadInput
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.models.policy import ModelPolicy, policy_here

SUFFIXES: Final = (".onnx", ".pt2", ".pt")
"""Of files with models."""


@dataclass(frozen=True)
class ChosenModel:
    """What SOURCE and the options say."""

    source: str
    model: ModelSource
    inputs: Inputs | None
    """None: as the file declares them."""
    policy: ModelPolicy
    """What this process may load, and from where."""


class _Shape(click.ParamType[tuple[int, ...]]):
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


_OPTIONS: Final = (
    click.argument("source"),
    click.option(
        "--shape", type=_Shape(), help="Dimensions of one sample: 3,224,224. Default: as the file declares them."
    ),
    click.option("--dtype", type=click.Choice([*NUMPY_DTYPES]), default=str(DType.FP32), show_default=True),
    click.option(
        "--input",
        "inputs",
        type=_Input(),
        multiple=True,
        help="One of several inputs, as NAME:DTYPE:SIZES: input_ids:INT64:128. Instead of --shape and --dtype.",
    ),
    click.option("--hugging-face", is_flag=True, help="SOURCE is a repository of Hugging Face, or a directory of one."),
    click.option("--revision", help="Commit, tag or branch of the repository. Default: main."),
    click.option(
        "--task",
        type=click.Choice([str(task) for task in HuggingFaceTask]),
        help="Default: as config.json declares it.",
    ),
)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with SOURCE and these options, which gets a ChosenModel as `chosen`."""

    @functools.wraps(command)
    def with_model(
        source: str,
        shape: tuple[int, ...] | None,
        dtype: str,
        inputs: tuple[NamedInput, ...],
        hugging_face: bool,
        revision: str | None,
        task: str | None,
        **others: Any,
    ) -> None:
        if inputs and shape is not None:
            raise BadInput("--shape is for models of one input; give --input for each of several, or --shape alone")
        one = None if shape is None else TensorSpec(shape=shape, dtype=DType(dtype))
        policy = policy_here()
        if hugging_face:
            name = source
            if Path(source).is_dir():
                directory = Path(source).resolve()
                name = f"{directory.parent.name}/{directory.name}"
                policy = policy.model_copy(update={"hub_directory": str(directory.parent.parent)})
            model = _repository(name, revision, task)
        elif revision is not None or task is not None:
            raise BadInput("--revision and --task are of a repository; add --hugging-face")
        else:
            model = _file_or_entrypoint(source)
        command(chosen=ChosenModel(source, model, inputs or one, policy), **others)

    for option in reversed(_OPTIONS):
        with_model = option(with_model)
    return with_model


def _file_or_entrypoint(source: str) -> ModelSource:
    """Raises BadInput for what is neither."""
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
