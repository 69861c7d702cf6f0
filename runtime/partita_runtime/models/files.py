"""Model files: located, compared with their digest, and read without unpickling."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import torch
from torch.export import ExportedProgram

from partita_runtime.models.archive_sizes import check_archive_size
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.exported.reading import read_exported
from partita_runtime.models.policy import ModelPolicy
from partita_runtime.models.remote_files import fetch

TorchModel = torch.nn.Module | ExportedProgram


def local_file(file: str, sha256: str | None, policy: ModelPolicy) -> Path:
    """The local path of a session's file, after a comparison with its digest if the platform or the session has one.

    A remote file is fetched if the platform allows it and its digest is known. Raises ModelError.
    """
    url = urlsplit(file)
    sha256 = policy.digest_of(file) or sha256
    if url.scheme not in ("", "file"):
        if policy.files is None or sha256 is None:
            raise ModelError(
                ModelErrorReason.FILE_UNREADABLE,
                f"{file}: a remote file needs its sha256 in the session and a location that the platform allows "
                "(models.allowedFiles of the chart); set both, or mount a volume with the file",
            )
        return _fetched(file, sha256)
    path = Path(unquote(url.path)) if url.scheme else Path(file)
    if not path.is_file():
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE, f"there is no file {path}; mount the volume that has it at that path"
        )
    if sha256 is not None:
        _compare(path, file, sha256)
    return path


class ModelFile(NamedTuple):
    """A model as it was read."""

    model: TorchModel
    path: Path
    weights_beside: tuple[Path, ...] = ()
    """The other files that its weights were in."""

    @property
    def content(self) -> str:
        """The SHA-256 digest of the file, or a digest of all files if weights were in others."""
        if not self.weights_beside:
            return sha256_of(self.path)
        return digest_of_files(
            {str(file.relative_to(self.path.parent)): file for file in self.weights_beside} | {"": self.path}
        )


def load_file(path: Path) -> TorchModel:
    """The model in a file; see `read_file`."""
    return read_file(path).model


def read_file(path: Path, *, has_digest: bool = False) -> ModelFile:
    """The model in a .pt2, .onnx or .pt file. Raises ModelError.

    Reading a .pt2 or .onnx file runs nothing that it contains. A TorchScript file (.pt) is code. With a digest, all of
    the model must be in the file.
    """
    try:
        match path.suffix:
            case ".onnx":
                return _onnx(path, has_digest)
            case ".pt2":
                return ModelFile(read_exported(path), path)
            case ".pt":
                check_archive_size(path)
                return ModelFile(torch.jit.load(path, map_location="cpu").eval(), path)  # type: ignore[no-untyped-call]
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"torch {torch.__version__} cannot read {path}: {type(error).__name__}: {error}; "
            "write .pt2 with torch.export.save, .pt with torch.jit.save",
        ) from error
    raise ModelError(
        ModelErrorReason.FILE_UNREADABLE,
        f"{path} has an unknown suffix; write .pt2 with torch.export.save, .onnx with torch.onnx.export, or .pt with "
        "torch.jit.save",
    )


def _onnx(path: Path, has_digest: bool) -> ModelFile:
    try:
        from partita_runtime.models.onnx.module import onnx_module
        from partita_runtime.models.onnx.reading import read_onnx
    except ModuleNotFoundError as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{path} needs the package {error.name}, which is missing here; build the image with EXTRAS=serving,onnx "
            "(of profiling Jobs: models,onnx), or add partita's extra onnx to the environment",
        ) from error
    found = read_onnx(path, alone=has_digest)
    return ModelFile(onnx_module(found.model), path, found.weights_beside)


def _fetched(uri: str, sha256: str) -> Path:
    """The file in a cache directory of this process's user, fetched if it is missing."""
    directory = Path(tempfile.gettempdir()) / f"partita-models-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{sha256}{Path(urlsplit(uri).path).suffix}"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            target = Path(temporary) / "model"
            fetch(uri, sha256, target)
            os.replace(target, path)
    _compare(path, uri, sha256)
    return path


def sha256_of(path: Path) -> str:
    """The SHA-256 digest of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digest_of_files(files: Mapping[str, Path]) -> str:
    """A SHA-256 digest of files and their names."""
    lines = [f"{name} {sha256_of(path)}\n" for name, path in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _compare(path: Path, source: str, sha256: str) -> None:
    found = sha256_of(path)
    if found != sha256:
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{source} does not match its digest {sha256}: its SHA-256 digest is {found}; correct the digest (sha256 "
            "in the session, or models.allowedFiles of the chart), or replace the file",
        )
