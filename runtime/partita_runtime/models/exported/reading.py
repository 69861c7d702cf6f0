"""Reads an exported program from a .pt2 file."""

from pathlib import Path

from torch._export.serde.serialize import ExportedProgramDeserializer
from torch.export import ExportedProgram

from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.exported.archive import ExportedArchive
from partita_runtime.models.exported.errors import ForbiddenContentError


def read_exported(path: Path) -> ExportedProgram:
    """The program, without sample inputs and guards. Nothing is unpickled, and no code of the file is run.

    Raises ModelError for content that is not allowed, and any error of torch if the file is not an exported program.
    `torch.export.load` would also unpickle, load native libraries, and try other formats after an error.
    """
    try:
        archive = ExportedArchive(path)
        program = archive.program()
        weights, constants = archive.weights(), archive.constants()
    except ForbiddenContentError as error:
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{path} contains {error}. Partita does not read this, because it could run code or take all memory; "
            "export a model of ATen operators with torch.export.save",
        ) from error
    return ExportedProgramDeserializer().deserialize(program, weights, constants, None)
