"""The files of a repository that are read, and what its config.json may say. Nothing is loaded here.

Transformers reads a directory with these files only: without pickles, and without code unless the platform allows it.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import digest_of_files, sha256_of

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
"""Names the files of weights that are divided."""
LARGEST_CONFIG: Final = 1024 * 1024
LARGEST_INDEX: Final = 32 * 1024 * 1024
"""Bytes."""

_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".pkl")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
_CODE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.py")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1: Final = re.compile(r"[0-9a-f]{40}")
_REFUSED: Final[Mapping[str, str]] = {
    "quantization_config": "quantized weights need other packages; use a repository with weights as floats",
    "use_pretrained_backbone": "a part of the model comes from another repository; use one that has all weights",
    "use_timm_backbone": "a part of the model comes from the package timm; use a repository without it",
}
"""Entries of config.json that make transformers load from elsewhere."""


@dataclass(frozen=True)
class Checkpoint:
    """What is read of a repository."""

    repository: str
    commit: str | None
    """None for a plain directory."""
    files: Mapping[str, Path]
    """By their names in the repository."""

    @property
    def content(self) -> str:
        """What identifies the content: the commit, or a SHA-256 digest of the files."""
        if self.commit is not None:
            return self.commit
        return digest_of_files(self.files)


def checkpoint_files(
    repository: str, present: Collection[str], get: Callable[[str], Path], *, with_code: bool
) -> dict[str, Path]:
    """The files of a repository to read, by name. Raises ModelError for one without config or safetensors.

    present: the names of all files. get: makes one of them available.
    """
    if CONFIG not in present:
        raise unreadable(f"{repository} has no {CONFIG}; name a repository with a model of transformers")
    names = [CONFIG, *(sorted(name for name in present if _CODE.fullmatch(name)) if with_code else ())]
    if WEIGHTS in present:
        names.append(WEIGHTS)
    elif INDEX in present:
        parts = parts_of(get(INDEX), repository)
        if missing := sorted(parts - set(present)):
            raise unreadable(f"{repository} has no {missing[0]}, which its {INDEX} names; complete the repository")
        names += [INDEX, *sorted(parts)]
    elif pickles := sorted(name for name in present if name.endswith(_PICKLES)):
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{repository} has its weights as {pickles[0]}, which can contain code, and not as {WEIGHTS}; use a "
            "revision or a repository with safetensors, or save the model with save_pretrained of transformers",
        )
    else:
        raise unreadable(f"{repository} has no {WEIGHTS}; name a repository with weights as safetensors")
    return {name: get(name) for name in names}


def parts_of(index: Path, repository: str) -> set[str]:
    """The names of the files of divided weights. Raises ModelError."""
    entries = _json(index, LARGEST_INDEX, repository).get("weight_map")
    names = set(entries.values()) if isinstance(entries, dict) and all(map(_is_text, entries.values())) else set()
    if not names or not all(map(_PART.fullmatch, names)):
        raise unreadable(f"the {INDEX} of {repository} does not name files of safetensors beside it; correct it")
    return names


def check_config(config: Path, repository: str, *, with_code: bool) -> bytes:
    """The content of a config.json that loads nothing from elsewhere. Raises ModelError."""
    content = _json(config, LARGEST_CONFIG, repository)
    for key, value in _entries(content):
        if key in _REFUSED and value:
            raise ModelError(ModelErrorReason.FORBIDDEN, f"{repository} has {key} in its {CONFIG}: {_REFUSED[key]}")
        if key == "auto_map" and with_code and "--" in json.dumps(value):
            raise ModelError(
                ModelErrorReason.FORBIDDEN,
                f"{repository} needs code of another repository (auto_map in its {CONFIG}); copy the code into it",
            )
        if key == "auto_map" and not with_code:
            raise ModelError(
                ModelErrorReason.FORBIDDEN,
                f"{repository} needs its own Python code (auto_map in its {CONFIG}), which the platform does not "
                "allow; use a repository whose model is in transformers, or set models.allowRemoteCode of the chart "
                "and list the repository with its commit in models.allowedRepositories",
            )
    return json.dumps(content).encode()


def matches(path: Path, etag: str) -> bool:
    """Whether a file has the content that its name in a cache promises; other names promise nothing."""
    if _SHA256.fullmatch(etag):
        return sha256_of(path) == etag
    if _GIT_SHA1.fullmatch(etag):
        found = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        found.update(path.read_bytes())
        return found.hexdigest() == etag
    return True


def etag_of(path: Path) -> str:
    """The name in a cache of the file's content; empty for a file that is no link."""
    return os.path.basename(os.readlink(path)) if path.is_symlink() else ""


def unreadable(message: str) -> ModelError:
    """The error of a repository that cannot be read."""
    return ModelError(ModelErrorReason.FILE_UNREADABLE, message)


def _json(path: Path, largest: int, repository: str) -> dict[str, Any]:
    size = path.stat().st_size
    if size > largest:
        raise unreadable(f"{path.name} of {repository} has {size} bytes, more than {largest}; use another revision")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise unreadable(f"{path.name} of {repository} is no JSON; use another revision") from error
    if not isinstance(content, dict):
        raise unreadable(f"{path.name} of {repository} is no JSON object; use another revision")
    return content


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """All entries of all objects in a JSON document."""
    open_ = [content]
    while open_:
        value = open_.pop()
        if isinstance(value, dict):
            yield from value.items()
            open_ += value.values()
        elif isinstance(value, list):
            open_ += value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
