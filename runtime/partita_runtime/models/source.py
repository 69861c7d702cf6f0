"""Loads the torch module of a ModelSource."""

import importlib
import logging
from collections.abc import Callable
from typing import Any

import torch

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel, load_file, local_file
from partita_runtime.models.policy import ModelPolicy, policy_here
from partita_runtime.models.weights import load_weights

_log = logging.getLogger(__name__)


def load_model(source: ModelSource, progress: Callable[[str], None] = _log.info) -> TorchModel:
    """The model on the CPU, in eval mode: a module (TorchScript included), or an exported program.

    Raises ModelError; if the platform does not allow the source, nothing is imported or read. An entrypoint with random
    weights must set the seed itself, unless the source has weights. `progress` receives lines about downloads.
    """
    policy = policy_here()
    if problem := policy.source_problem(source):
        raise ModelError(ModelErrorReason.FORBIDDEN, problem)
    if source.hugging_face is not None:
        return _from_repository(source.hugging_face, source, policy, progress)
    if source.entrypoint is None:
        assert source.file is not None  # ModelSource has one of the three
        has_digest = (policy.digest_of(source.file) or source.sha256) is not None
        return load_file(local_file(source.file, source.sha256, policy), has_digest=has_digest)
    model = _from_entrypoint(source.entrypoint, source.kwargs)
    if source.weights is not None:
        load_weights(model, local_file(source.weights, source.sha256, policy))
    return model


def resolve_entrypoint(entrypoint: str) -> Callable[..., Any]:
    """The callable that `package.module:name` names, if the platform allows it. Raises ModelError."""
    module_name, _, name = entrypoint.partition(":")
    policy = policy_here()
    if problem := policy.entrypoint_problem(entrypoint):
        raise ModelError(ModelErrorReason.FORBIDDEN, problem)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED,
            f"cannot import {module_name}: {_text_of(error)}; add the package to the image, or correct the entrypoint",
        ) from error
    target = getattr(module, name, None)
    if not callable(target):
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED, f"{module_name} has no callable {name}; correct the entrypoint {entrypoint}"
        )
    if problem := policy.origin_problem(entrypoint, target):
        raise ModelError(ModelErrorReason.FORBIDDEN, problem)
    return target  # type: ignore[no-any-return]


def _from_repository(
    repository: str, source: ModelSource, policy: ModelPolicy, progress: Callable[[str], None]
) -> torch.nn.Module:
    try:
        from partita_runtime.models.hugging_face.module import load_checkpoint
        from partita_runtime.models.hugging_face.repository import find_checkpoint
    except ModuleNotFoundError as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{repository} needs the package {error.name}, which is missing here; build the image with "
            "EXTRAS=serving,hugging-face (of profiling Jobs: models,hugging-face), or add partita's extra hugging-face "
            "to the environment",
        ) from error
    checkpoint = find_checkpoint(repository, source.revision, policy, progress)
    return load_checkpoint(checkpoint, source.task, with_code=policy.runs_code_of(repository))


def _from_entrypoint(entrypoint: str, kwargs: dict[str, Any]) -> torch.nn.Module:
    make = resolve_entrypoint(entrypoint)
    try:
        model = make(**kwargs)
    except Exception as error:
        raise ModelError(
            ModelErrorReason.IMPORT_FAILED,
            f"{entrypoint} raised {_text_of(error)}; call it with kwargs that it accepts",
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            ModelErrorReason.NOT_A_MODEL,
            f"{entrypoint} returned {type(model).__name__}; it must return a torch.nn.Module",
        )
    return model.eval().requires_grad_(False)


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
