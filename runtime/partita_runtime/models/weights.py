"""Loads weights from a file into a model of an entrypoint; nothing in the file is run."""

from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model as load_safetensors

from partita_runtime.models.archive_sizes import check_archive_size
from partita_runtime.models.errors import ModelError, ModelErrorReason

SAFETENSORS: Final = ".safetensors"
STATE_DICTS: Final = (".pt", ".pth", ".bin")


def load_weights(model: torch.nn.Module, path: Path) -> None:
    """Fill a model with the tensors of a file, all of them and no others; tied ones need to be there once.

    Raises ModelError.
    """
    if path.suffix != SAFETENSORS and path.suffix not in STATE_DICTS:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{path} is not a known kind of weights file; write {SAFETENSORS} with safetensors.torch.save_model, or a "
            f"state dict ({', '.join(STATE_DICTS)}) with torch.save",
        )
    try:
        if path.suffix == SAFETENSORS:
            load_safetensors(model, path)
        else:
            model.load_state_dict(_state(path))
    except RuntimeError as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"the weights in {path} do not match {type(model).__name__}: {error}; use the file that belongs to the "
            "entrypoint and its kwargs",
        ) from error
    except SafetensorError as error:
        raise _unreadable(path, error) from error


def _state(path: Path) -> dict[str, torch.Tensor]:
    try:
        check_archive_size(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except ModelError:
        raise
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(state, dict):
        raise _unreadable(path, TypeError(f"it holds a {type(state).__name__}, not a state dict"))
    return state


def _unreadable(path: Path, error: Exception) -> ModelError:
    return ModelError(
        ModelErrorReason.FILE_UNREADABLE,
        f"{path} cannot be read as weights: {type(error).__name__}: {error}; only tensors are read",
    )
