"""From a ModelSource to a torch module."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import torch
from torch.export import ExportedProgram

from partita_api.inferencesession import ModelSource
from partita_runtime.models.errors import ModelError, ModelErrorReason

LoadedModel = torch.nn.Module | ExportedProgram


def load_model(source: ModelSource) -> LoadedModel:
    """The model on the CPU, in eval mode: a module (TorchScript included), or an exported program.

    Raises ModelError. Weights drawn at random are the entrypoint's to seed.
    """
    if source.entrypoint is not None:
        return _from_entrypoint(source.entrypoint, source.kwargs)
    assert source.file is not None  # ModelSource has exactly one of the two
    return _from_file(local_path(source.file))


def resolve_entrypoint(entrypoint: str) -> Callable[..., Any]:
    """The callable that `package.module:name` names. Raises ModelError."""
    module_name, _, name = entrypoint.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED,
            f"cannot import {module_name}: {_said(error)}; put the package into the image, or correct the entrypoint",
        ) from error
    target = getattr(module, name, None)
    if not callable(target):
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED, f"{module_name} has no callable {name}; correct the entrypoint {entrypoint}"
        )
    return target  # type: ignore[no-any-return]


def local_path(file: str) -> Path:
    """The path that `file` (a path, or a file:// URI) names. Raises ModelError for other schemes."""
    url = urlsplit(file)
    if url.scheme == "file":
        return Path(unquote(url.path))
    if url.scheme:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{file}: only local paths and file:// can be read; mount a volume with the file, "
            "or use an entrypoint that fetches it",
        )
    return Path(file)


def _from_entrypoint(entrypoint: str, kwargs: dict[str, Any]) -> torch.nn.Module:
    make = resolve_entrypoint(entrypoint)
    try:
        model = make(**kwargs)
    except Exception as error:
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED, f"{entrypoint} raised {_said(error)}; call it with kwargs that it accepts"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            ModelErrorReason.NOT_A_MODEL,
            f"{entrypoint} returned {type(model).__name__}; it must return a torch.nn.Module",
        )
    return model.eval().requires_grad_(False)


def _from_file(path: Path) -> LoadedModel:
    if not path.is_file():
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE, f"there is no file {path}; mount the volume that has it at that path"
        )
    try:
        match path.suffix:
            case ".pt2":
                return torch.export.load(path)
            case ".pt":
                return torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call, no-any-return]
    except Exception as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"torch {torch.__version__} cannot read {path}: {_said(error)}; "
            "write .pt2 with torch.export.save, .pt with torch.jit.save",
        ) from error
    raise ModelError(
        ModelErrorReason.FILE_UNREADABLE,
        f"{path} is of no known kind; write .pt2 with torch.export.save, or .pt with torch.jit.save",
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
