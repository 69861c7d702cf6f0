"""What a model is like before anything is deployed: its tensors, and its blocks with their memory, work and cuts.

The process that loads the model answers a request with a line of JSON.
"""

from typing import Final

from pydantic import Field

from partita_api.meta import SpecModel, is_unset
from partita_api.profile import BlockMemory, Cut
from partita_api.session.module import Inputs, ModelSource, NamedInput, TensorSpec

RESULT_PREFIX: Final = "PARTITA-INSPECTION "
ERROR_PREFIX: Final = "PARTITA-INSPECTION-ERROR "
"""The beginnings of the lines with an Inspection, and with what is wrong with the model."""


class InspectionRequest(SpecModel):
    """What to inspect."""

    model: ModelSource
    inputs: Inputs | None = Field(default=None, description="Default: as the file declares them.")
    blocks: int = Field(default=10, ge=1, le=20)


class InspectedBlock(SpecModel):
    """One block."""

    memory: BlockMemory
    megaflops: float = Field(ge=0, description="Millions of multiplications and additions for one sample.")
    share: float = Field(ge=0, le=1, description="Share of the model's time on the nominal accelerator.")
    crossing: Cut = Field(description="What crosses the cut behind it; for the last block the model's outputs.")


class Inspection(SpecModel):
    """A model."""

    content: str | None = Field(
        default=None, description="What is behind the source's name: a digest, or a commit. None: not known."
    )
    input: TensorSpec | None = Field(default=None, exclude_if=is_unset)
    inputs: tuple[NamedInput, ...] | None = Field(default=None, exclude_if=is_unset, description="... of several.")
    outputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...] = Field(description='"" for an output without a name.')
    blocks: tuple[InspectedBlock, ...]
    warnings: tuple[str, ...] = ()
