"""A .pt2 file as torch's reader sees it: only known members, none of them larger than the file.

All is read by one reader of torch. Python's zipfile may see other members in the same file.
"""

import re
from math import prod
from pathlib import Path
from typing import Final

import torch
from torch._export.serde import schema
from torch._export.serde.serialize import deserialize_device, deserialize_scalar_type

from partita_runtime.models.exported.errors import ForbiddenContentError
from partita_runtime.models.exported.program import exported_program, payloads

Tensors = dict[str, torch.Tensor]

_PROGRAM: Final = "models/model.json"
_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_WEIGHTS_CONFIG: Final = f"{_WEIGHTS}model_weights_config.json"
_CONSTANTS_CONFIG: Final = f"{_CONSTANTS}model_constants_config.json"
_MEMBER: Final = re.compile(
    rf"{re.escape(_PROGRAM)}|{re.escape(_WEIGHTS_CONFIG)}|{re.escape(_CONSTANTS_CONFIG)}"
    rf"|{_WEIGHTS}weight_[0-9]+|{_CONSTANTS}tensor_[0-9]+"
    r"|archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
    # Not read: torch would unpickle the sample inputs.
    r"|data/sample_inputs/model\.pt|extra/.+",
    re.ASCII,
)
LARGEST_DOCUMENT: Final = 32 * 2**20
"""Bytes of the program, and of the list of its tensors."""


class ExportedArchive:
    """An archive that contains nothing but a program and its tensors."""

    def __init__(self, path: Path) -> None:
        """Raises ForbiddenContentError for other members, and any error if it is not an archive."""
        self._reader = torch._C.PyTorchFileReader(str(path))
        _check_members({name: self._reader.get_record_size(name) for name in self._names()}, path.stat().st_size)

    def program(self) -> schema.ExportedProgram:
        """The graph. Raises ForbiddenContentError."""
        return exported_program(self._document(_PROGRAM))

    def weights(self) -> Tensors:
        """Parameters and buffers by their names. Raises ForbiddenContentError."""
        return self._tensors(_WEIGHTS, payloads(self._document(_WEIGHTS_CONFIG)))

    def constants(self) -> Tensors:
        """Tensors that the graph uses as constants. Raises ForbiddenContentError."""
        return self._tensors(_CONSTANTS, payloads(self._document(_CONSTANTS_CONFIG)))

    def _names(self) -> list[str]:
        names = self._reader.get_all_records()
        if len(set(names)) != len(names):
            raise ForbiddenContentError("two members of one name")
        return names

    def _document(self, name: str) -> bytes:
        if (size := self._reader.get_record_size(name)) > LARGEST_DOCUMENT:
            raise ForbiddenContentError(f"{name} of {size} bytes; at most {LARGEST_DOCUMENT} are read")
        return self._reader.get_record(name)

    def _tensors(self, directory: str, found: dict[str, schema.PayloadMeta]) -> Tensors:
        """Tensors of one member share its memory, as they did when the program was exported."""
        contents: dict[str, torch.Tensor] = {}
        tensors: Tensors = {}
        for name, payload in found.items():
            meta = payload.tensor_meta
            if meta is None:
                raise ForbiddenContentError(f"{name}, which is not a tensor")
            if payload.path_name not in contents:
                contents[payload.path_name] = self._content(directory + payload.path_name, meta)
            tensor = torch.as_strided(
                contents[payload.path_name],
                [length.as_int for length in meta.sizes],
                [stride.as_int for stride in meta.strides],
                meta.storage_offset.as_int,
            )
            tensors[name] = torch.nn.Parameter(tensor, meta.requires_grad) if payload.is_param else tensor
        return tensors

    def _content(self, member: str, meta: schema.TensorMeta) -> torch.Tensor:
        """The elements of a member in one dimension."""
        dtype, size = deserialize_scalar_type(meta.dtype), self._reader.get_record_size(member)
        if size == 0:
            if prod(length.as_int for length in meta.sizes) != 0:
                raise ForbiddenContentError(f"{member}, which is empty, as a tensor with elements")
            return torch.empty(0, dtype=dtype)
        storage = self._reader.get_storage_from_record(member, size // dtype.itemsize, dtype).untyped_storage()
        elements = torch.empty(0, dtype=dtype).set_(storage, 0, (size // dtype.itemsize,), (1,))
        return elements.to(deserialize_device(meta.device))


def _check_members(sizes: dict[str, int], file_size: int) -> None:
    """torch.export.save does not compress, so members that need more memory than the file are an attack."""
    if unknown := sorted(name for name in sizes if not _MEMBER.fullmatch(name)):
        raise ForbiddenContentError(f"the member {unknown[0]!r:.200}")
    if (total := sum(sizes.values())) > file_size:
        raise ForbiddenContentError(f"compressed members, with {total} bytes in a file of {file_size}")
