"""How much memory the archives of torch need: not more than their files, apart from compressed code."""

from pathlib import Path
from typing import Final

import torch

from partita_runtime.models.errors import ModelError, ModelErrorReason

LARGEST_GROWTH: Final = 64 * 2**20
"""Bytes that the members of an archive may need beyond its file: torch compresses code only, never tensors."""
_ZIP: Final = b"PK\x03\x04"


def check_archive_size(path: Path) -> None:
    """Raises ModelError for an archive that would take much more memory than its file. Other files are no archives."""
    with path.open("rb") as content:
        if content.read(len(_ZIP)) != _ZIP:
            return
    reader = torch._C.PyTorchFileReader(str(path))
    total, file_size = sum(map(reader.get_record_size, reader.get_all_records())), path.stat().st_size
    if total > file_size + LARGEST_GROWTH:
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{path} has {file_size} bytes, but its content has {total}; write it with torch, which does not compress "
            "tensors",
        )
