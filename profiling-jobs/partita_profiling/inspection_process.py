"""Loads a model and says what it is like.

`python -m partita_profiling.inspection_process` reads an InspectionRequest from standard input.
"""

import sys

from partita_api.session.module import TensorSpec
from partita_profiling.cuts import cut
from partita_profiling.declared_inputs import declared_inputs
from partita_profiling.inspection import ERROR_PREFIX, RESULT_PREFIX, InspectedBlock, Inspection, InspectionRequest
from partita_profiling.memory import block_memory
from partita_runtime.models.errors import ModelError
from partita_runtime.models.layers import NOMINAL_BATCH
from partita_runtime.models.partitioned_model import partition
from partita_runtime.models.source import load_source


def inspect(request: InspectionRequest) -> Inspection:
    """Load the model and cut it. Raises ModelError."""
    loaded = load_source(request.model)
    inputs = request.inputs or declared_inputs(loaded.model)
    model = partition(loaded.model, inputs, request.blocks)
    seconds = sum(work.seconds for work in model.work)
    return Inspection(
        content=loaded.content,
        input=inputs if isinstance(inputs, TensorSpec) else None,
        inputs=None if isinstance(inputs, TensorSpec) else inputs,
        outputs=model.outputs,
        output_names=model.output_names,
        blocks=tuple(
            InspectedBlock(
                memory=memory,
                megaflops=round(work.flops / NOMINAL_BATCH / 1e6, 3),
                share=round(work.seconds / seconds, 4),
                crossing=cut(tensors),
            )
            for memory, work, tensors in zip(block_memory(model, inputs), model.work, model.boundaries[1:], strict=True)
        ),
        warnings=model.warnings,
    )


def main() -> None:
    """Answer the request on standard input."""
    try:
        found = inspect(InspectionRequest.model_validate_json(sys.stdin.read()))
    except ModelError as error:
        print(f"{ERROR_PREFIX}{error.message}", flush=True)
        raise SystemExit(1) from error
    print(f"{RESULT_PREFIX}{found.model_dump_json(by_alias=True)}", flush=True)


if __name__ == "__main__":
    main()
