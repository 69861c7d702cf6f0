"""Model files: located, compared with their digest, and read without running pickled code."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import torch
from torch.export import ExportedProgram

from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.policy import ModelPolicy
from partita_runtime.models.remote_files import fetch

TorchModel = torch.nn.Module | ExportedProgram

_FORCE_WEIGHTS_ONLY: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_PICKLED_OBJECT: Final = "opaque_obj_"
"""torch.export unpickles entries with this prefix without checks."""


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


def load_file(path: Path) -> TorchModel:
    """The model in a .pt2 or .pt file. Raises ModelError.

    Only tensors in the file are unpickled. A file can still do harm: torch.export evaluates its expressions of dynamic
    shapes, and TorchScript runs its code.
    """
    try:
        match path.suffix:
            case ".pt2":
                _refuse_pickled_objects(path)
                with _weights_only():
                    return torch.export.load(path)
            case ".pt":
                return torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call, no-any-return]
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
        f"{path} has an unknown suffix; write .pt2 with torch.export.save, or .pt with torch.jit.save",
    )


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


def _compare(path: Path, source: str, sha256: str) -> None:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{source} does not match its digest {sha256}: its SHA-256 digest is {found}; correct the digest (sha256 "
            "in the session, or models.allowedFiles of the chart), or replace the file",
        )


def _refuse_pickled_objects(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if any(Path(name).name.startswith(_PICKLED_OBJECT) for name in archive.namelist()):
            raise ModelError(
                ModelErrorReason.FORBIDDEN,
                f"{path} contains pickled Python objects, which can run any code; export the model without them",
            )


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make torch.load refuse everything but tensors; torch.export would otherwise try again without that limit."""
    before = os.environ.get(_FORCE_WEIGHTS_ONLY)
    os.environ[_FORCE_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE_WEIGHTS_ONLY]
        else:
            os.environ[_FORCE_WEIGHTS_ONLY] = before
