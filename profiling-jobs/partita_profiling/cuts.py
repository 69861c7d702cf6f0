"""What crosses between blocks, as profiles say it."""

from collections.abc import Sequence

from partita_api.profile import Cut
from partita_runtime.models.layers import SampleTensor


def cut(tensors: Sequence[SampleTensor]) -> Cut:
    """The tensors that cross a cut, for one sample."""
    return Cut(
        bytes=sum(tensor.bytes for tensor in tensors),
        tensors=len(tensors),
        specs=tuple(tensor.spec for tensor in tensors),
    )
