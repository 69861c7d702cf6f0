"""Loads the torch module of a ModelSource."""

import importlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import CONTENT_CHANGED_MARK, ModelError, ModelErrorReason
from partita_runtime.models.files import TorchModel, local_file, read_file, sha256_of
from partita_runtime.models.policy import ModelPolicy, policy_here
from partita_runtime.models.weights import load_weights

_log = logging.getLogger(__name__)


_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class LoadedSource:
    """A model with what it was loaded from."""

    model: TorchModel
    content: str | None
    """The commit of a repository, or a SHA-256 digest; None for an entrypoint without weights."""


def load_model(source: ModelSource) -> TorchModel:
    """The model of `load_source`."""
    return load_source(source).model


def load_source(
    source: ModelSource, *, content: str | None = None, progress: Callable[[str], None] = _log.info
) -> LoadedSource:
    """The model on the CPU, in eval mode: a module (TorchScript included), or an exported program.

    Raises ModelError; if the platform does not allow the source, nothing is imported or read. An entrypoint with random
    weights must set the seed itself, unless the source has weights.

    content: what the model must have been loaded from, if known; of a repository, this commit is loaded. progress:
    receives lines about downloads.
    """
    policy = policy_here()
    if problem := policy.source_problem(source):
        raise ModelError(ModelErrorReason.FORBIDDEN, problem)
    loaded = _loaded(_at_commit(source, content, policy), policy, progress)
    if content not in (None, loaded.content):
        raise ModelError(
            ModelErrorReason.CONTENT_CHANGED,
            f"{source.file or source.weights or source.hugging_face} has the content {loaded.content} here, and had "
            f"{content} when it was profiled {CONTENT_CHANGED_MARK}; the operator profiles and plans again, unless its "
            "session is paused. Without an operator, profile it again or put the former content back",
        )
    return loaded


def _at_commit(source: ModelSource, content: str | None, policy: ModelPolicy) -> ModelSource:
    """The source with the commit that was profiled, unless the platform requires one."""
    repository = source.hugging_face
    if repository is None or policy.commit_of(repository) or not _COMMIT.fullmatch(content or ""):
        return source
    return source.model_copy(update={"revision": content})


def _loaded(source: ModelSource, policy: ModelPolicy, progress: Callable[[str], None]) -> LoadedSource:
    if source.hugging_face is not None:
        return _from_repository(source.hugging_face, source, policy, progress)
    if source.entrypoint is None:
        assert source.file is not None  # ModelSource has one of the three
        has_digest = (policy.digest_of(source.file) or source.sha256) is not None
        path = local_file(source.file, source.sha256, policy)
        found = read_file(path, has_digest=has_digest)
        return LoadedSource(found.model, found.content)
    model = _from_entrypoint(source.entrypoint, source.kwargs)
    if source.weights is None:
        return LoadedSource(model, None)
    path = local_file(source.weights, source.sha256, policy)
    load_weights(model, path)
    return LoadedSource(model, sha256_of(path))


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
    if problem := policy.origin_problem(entrypoint, getattr(target, "__module__", None)):
        raise ModelError(ModelErrorReason.FORBIDDEN, problem)
    return target  # type: ignore[no-any-return]


def _from_repository(
    repository: str, source: ModelSource, policy: ModelPolicy, progress: Callable[[str], None]
) -> LoadedSource:
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
    model = load_checkpoint(checkpoint, source.task, with_code=policy.runs_code_of(repository))
    return LoadedSource(model, checkpoint.content)


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
