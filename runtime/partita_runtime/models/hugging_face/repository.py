"""Finds a repository: in the platform's directory, in a cache, or at the hub, from which it is downloaded once a node.

Pods that share the cache share downloads: huggingface_hub locks each file while it downloads it.
"""

import io
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm import tqdm

from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.hugging_face.checkpoint import (
    CONFIG,
    Checkpoint,
    checkpoint_files,
    etag_of,
    matches,
    unreadable,
)
from partita_runtime.models.policy import ModelPolicy

Progress = Callable[[str], None]
"""Receives lines for people."""

_MAIN: Final = "main"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_NO_ACCESS: Final = (401, 403)
_SECONDS_BETWEEN_LINES: Final = 5.0


def find_checkpoint(repository: str, revision: str | None, policy: ModelPolicy, progress: Progress) -> Checkpoint:
    """The files of a repository that the policy allows, downloaded if they are missing. Raises ModelError."""
    with_code = policy.runs_code_of(repository)
    requested = policy.commit_of(repository) or revision or _MAIN
    plain = Path(policy.hub_directory) / repository
    if policy.hub_directory and (plain / CONFIG).is_file():
        if requested != _MAIN:
            raise unreadable(
                f"{plain} is a plain directory, which has no revisions; remove revision {requested}, or make "
                f"{policy.hub_directory} a cache of huggingface_hub"
            )
        return _in_directory(repository, plain, None, with_code)
    cache = _cache(policy)
    offline = policy.hub_offline or constants.is_offline_mode()
    if offline or _COMMIT.fullmatch(requested):
        found = try_to_load_from_cache(repository, CONFIG, cache_dir=cache, revision=requested)
        if isinstance(found, str):
            try:
                return _in_cache(repository, Path(found).parent, with_code)
            except ModelError:
                if offline:
                    raise
        elif offline:
            raise unreadable(
                f"{cache} does not have {repository} at {requested}, and nothing is downloaded (models.hubOffline of "
                f"the chart, or HF_HUB_OFFLINE); put it there, as a cache of huggingface_hub or in {plain}"
            )
    try:
        return _from_hub(repository, requested, policy.hub_endpoint or None, cache, with_code, progress)
    except ModelError:
        raise
    except Exception as error:
        raise _explained(error, repository, requested, policy.hub_endpoint or constants.ENDPOINT) from error


def _cache(policy: ModelPolicy) -> Path:
    if policy.hub_directory:
        return Path(policy.hub_directory)
    if {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"} & os.environ.keys():
        return Path(constants.HF_HUB_CACHE)
    directory = Path(tempfile.gettempdir()) / f"partita-models-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory / "hub"


def _in_directory(repository: str, directory: Path, commit: str | None, with_code: bool) -> Checkpoint:
    names = {entry.name for entry in directory.iterdir()}
    files = checkpoint_files(repository, names, directory.joinpath, with_code=with_code)
    return Checkpoint(repository, commit, files)


def _in_cache(repository: str, snapshot: Path, with_code: bool) -> Checkpoint:
    found = _in_directory(repository, snapshot, snapshot.name, with_code)
    for name, path in found.files.items():
        if not path.is_file() or not matches(path, etag_of(path)):
            raise unreadable(
                f"{name} of {repository} is damaged: its content is not that of its digest; delete {path} and what it "
                "points to"
            )
    return found


def _from_hub(
    repository: str, revision: str, endpoint: str | None, cache: Path, with_code: bool, progress: Progress
) -> Checkpoint:
    """Raises ModelError, or any error of huggingface_hub."""
    info = HfApi(endpoint=endpoint).model_info(repository, revision=revision, files_metadata=True)
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise unreadable(f"the hub gives {commit or 'no commit'} as {revision} of {repository}; correct the mirror")
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}

    def get(name: str) -> Path:
        def download(again: bool) -> Path:
            bar: Any = _bar(f"{repository}: {name}", progress)
            return Path(
                hf_hub_download(
                    repository,
                    name,
                    revision=commit,
                    cache_dir=cache,
                    endpoint=endpoint,
                    force_download=again,
                    tqdm_class=bar,
                )
            )

        _check_disk(cache, repository, sizes[name])
        path = download(again=False)
        if matches(path, etag_of(path)):
            return path
        path = download(again=True)
        if matches(path, etag_of(path)):
            return path
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{name} of {repository} does not have the digest {etag_of(path)} that the hub gives; correct the hub or "
            "its mirror",
        )

    progress(f"{repository} at {revision} is commit {commit}")
    files = checkpoint_files(repository, sizes, get, with_code=with_code)
    if revision != commit:  # the cache then knows the revision when it is offline
        hf_hub_download(repository, CONFIG, revision=revision, cache_dir=cache, endpoint=endpoint)
    return Checkpoint(repository, commit, files)


def _check_disk(cache: Path, repository: str, size: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if size > free:
        raise unreadable(
            f"a file of {repository} has {size} bytes, and {cache} has {free} left; mount a larger volume there, or "
            "set models.hubDirectory of the chart"
        )


def _bar(title: str, progress: Progress) -> type[tqdm]:
    """A progress bar of tqdm that is lines of a log."""

    class Lines(tqdm):
        monitor_interval = 0  # no thread

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._said = time.monotonic()
            own = {"disable": False, "mininterval": _SECONDS_BETWEEN_LINES, "file": io.StringIO()}
            super().__init__(*args, **{**kwargs, **own})

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            now = time.monotonic()
            if self.n == self.total or now - self._said >= _SECONDS_BETWEEN_LINES:
                self._said = now
                progress(f"downloading {title}: {self.n / 1e6:.1f} of {(self.total or 0) / 1e6:.1f} MB")

    return Lines


def _explained(error: Exception, repository: str, revision: str, endpoint: str) -> ModelError:
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, RevisionNotFoundError):
        return unreadable(f"{repository} has no revision {revision}; name a commit, a tag or a branch that it has")
    if isinstance(error, GatedRepoError | RepositoryNotFoundError) or status in _NO_ACCESS:
        return unreadable(
            f"{repository} does not exist at {endpoint}, or is gated or private; correct the name, or let the pods "
            "have HF_TOKEN from a Secret (podTemplate of the pools), with a token that may read it"
        )
    if isinstance(error, OfflineModeIsEnabled):
        return unreadable(f"{repository} cannot be downloaded, because HF_HUB_OFFLINE is set; unset it")
    return unreadable(
        f"{repository} cannot be read from {endpoint} ({type(error).__name__}); check that the pods can reach it, or "
        "set models.hubDirectory and models.hubOffline of the chart"
    )
