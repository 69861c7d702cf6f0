"""`partita model`: looks at models before anything is deployed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest

import click
from rich import filesize
from rich.console import Console
from rich.table import Table

from partita_api.session.module import TensorSpec
from partita_operator.cli.errors import BadInput
from partita_operator.cli.offline.model_options import ChosenModel, model_options
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_profiling.inspection import ERROR_PREFIX, RESULT_PREFIX, Inspection, InspectionRequest
from partita_runtime.models.policy import VARIABLE, policy_text


@click.group()
def model() -> None:
    """Look at models, without a cluster."""


@model.command()
@model_options
@click.option("--blocks", type=click.IntRange(1, 20), default=10, show_default=True, help="Most blocks to cut it into.")
@output_option
def inspect(chosen: ChosenModel, blocks: int, output: OutputFormat) -> None:
    """Show the tensors of SOURCE, and its blocks with their memory, work and cuts.

    SOURCE is a file (.onnx, .pt2, .pt) or an entrypoint (package.module:function), which is called without arguments.
    With --hugging-face it is OWNER/NAME at the hub, which is downloaded, or a directory with config.json and
    safetensors. It is loaded in a process of its own.
    """
    found = inspected(chosen, blocks)

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


def inspected(chosen: ChosenModel, blocks: int) -> Inspection:
    """The result of another process. Raises BadInput with what is wrong with the model."""
    request = InspectionRequest(model=chosen.model, inputs=chosen.inputs, blocks=blocks)
    done = subprocess.run(
        [sys.executable, "-m", "partita_profiling.inspection_process"],
        input=request.model_dump_json(by_alias=True),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.getcwd()])),
            VARIABLE: policy_text(chosen.policy),
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
