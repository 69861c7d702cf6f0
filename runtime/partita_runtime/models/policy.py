"""The model policy of the platform: which code, which files and which servers sessions may use.

The operator refuses a session before it starts anything for it, and passes the policy to every process that loads
models and functions, which check it again.
"""

import os
import posixpath
import re
from typing import Annotated, Any, Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, model_validator

from partita_api.fields.url import BEGINNING_PATTERN, begins_with_one_of, server_of
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.session.module import ModelSource

VARIABLE: Final = "PARTITA_MODEL_POLICY"
"""The environment variable with the policy of a process."""

MODULE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""What names of Python packages and modules look like."""

FILES_PATTERN: Final = r"^.+(/|[^/]@sha256:[0-9a-f]{64})$"
"""What entries of allowed files look like: a directory, or a file with its digest."""

REPOSITORIES_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*/([A-Za-z0-9][A-Za-z0-9_.-]*(@[0-9a-f]{40})?)?$"
"""What entries of allowed repositories look like: an owner, a repository, or a repository with its commit."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_FILE: Final = re.compile(r"(.+)@sha256:([0-9a-f]{64})")


class ModelPolicy(SpecModel):
    """What sessions may use; by default, everything in the image."""

    modules: tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...] | None = Field(
        default=None,
        description="Python packages and modules that may contain entrypoints. Default: every importable module.",
    )
    files: tuple[str, ...] | None = Field(
        default=None,
        description="Allowed model files: directories such as /models/, URIs such as s3://models/, and single files "
        "with the digest that they must have, such as /models/a.pt2@sha256:... Default: any local file.",
    )
    require_digest: bool = Field(
        default=False, description="Whether a file needs a SHA-256 digest, from `files` or from the session."
    )

    endpoints: tuple[Annotated[str, Field(pattern=BEGINNING_PATTERN)], ...] = Field(
        default=(), description="Beginnings of the URLs that modules with an endpoint may have. Default: none."
    )
    repositories: tuple[Annotated[str, Field(pattern=REPOSITORIES_PATTERN)], ...] | None = Field(
        default=None,
        description="Allowed repositories of Hugging Face: owners such as google/, repositories, and repositories with "
        "the commit that they must have, such as google/vit@<commit>. Default: every repository, or none if modules, "
        "files or require_digest are set.",
    )
    remote_code: bool = Field(
        default=False, description="Whether the code in repositories may run that `repositories` lists with a commit."
    )
    hub_endpoint: str = Field(default="", description="URL of the hub or its mirror. Default: Hugging Face's.")
    hub_directory: str = Field(
        default="",
        description="Directory with repositories: a cache of huggingface_hub, or checkpoints in OWNER/NAME. Default: a "
        "cache in the directory of temporary files.",
    )
    hub_offline: bool = Field(default=False, description="Whether nothing is downloaded from the hub.")

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        if wrong := [entry for entry in self.files or () if not _is_directory(entry) and _file(entry) is None]:
            raise ValueError(
                f"files: {', '.join(wrong)} must be a directory, ending with a slash, such as /models/, or a file with "
                "its digest, such as /models/a.pt2@sha256:..."
            )
        names = [found[0] for found in map(_file, self.files or ()) if found]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"files: {', '.join(twice)} has two digests; keep one")
        pinned = [entry.partition("@")[0] for entry in self.repositories or () if "@" in entry]
        if twice := sorted({name for name in pinned if pinned.count(name) > 1}):
            raise ValueError(f"repositories: {', '.join(twice)} has two commits; keep one")
        return self

    @property
    def is_set(self) -> bool:
        """Whether the platform has set anything."""
        return self != ModelPolicy()

    def entrypoint_problem(self, entrypoint: str) -> str:
        """Why an entrypoint is forbidden; empty if it is allowed."""
        module = entrypoint.partition(":")[0]
        if self.allows_module(module):
            return ""
        return (
            f"entrypoint {entrypoint} is not in a module that the platform allows "
            f"({', '.join(self.modules or ()) or 'none'}); use one of those, or add {module.split('.')[0]} to "
            "models.allowedModules of the chart"
        )

    def origin_problem(self, entrypoint: str, origin: str | None) -> str:
        """Why an entrypoint is forbidden whose target is defined in `origin`; empty if it is allowed."""
        if self.allows_module(origin):
            return ""
        return (
            f"entrypoint {entrypoint} is defined in {origin}, which the platform does not allow; "
            "use a callable that is defined in an allowed module"
        )

    def allows_module(self, module: str | None) -> bool:
        """Whether a module may contain entrypoints."""
        if self.modules is None:
            return True
        return module is not None and any(module == m or module.startswith(f"{m}.") for m in self.modules)

    def source_problem(self, source: ModelSource) -> str:
        """Why a model is forbidden; empty if it is allowed."""
        if source.hugging_face is not None:
            return self._repository_problem(source.hugging_face, source.revision)
        if source.entrypoint is not None and (problem := self.entrypoint_problem(source.entrypoint)):
            return problem
        file = source.file or source.weights
        return self._file_problem(file, source.sha256) if file is not None else ""

    def endpoint_problem(self, url: str) -> str:
        """Why the URL of an endpoint is forbidden; empty if it is allowed."""
        if begins_with_one_of(self.endpoints, url):
            return ""
        return (
            f"endpoint {url} is not a URL that the platform allows ({', '.join(self.endpoints) or 'none'}); use one of "
            f"those, or add {server_of(url)} to models.allowedEndpoints of the chart"
        )

    def digest_of(self, file: str) -> str | None:
        """The SHA-256 digest that the platform requires of a file, whatever the session says."""
        return dict(filter(None, map(_file, self.files or ()))).get(_normal(file))

    def commit_of(self, repository: str) -> str | None:
        """The commit that the platform requires of a repository, whatever the session says."""
        entries = (entry.partition("@") for entry in self.repositories or ())
        return next((commit for name, _, commit in entries if commit and name == repository), None)

    def runs_code_of(self, repository: str) -> bool:
        """Whether the code in a repository may run."""
        return self.remote_code and self.commit_of(repository) is not None

    def _repository_problem(self, repository: str, revision: str | None) -> str:
        commit = self.commit_of(repository)
        if commit is not None:
            if revision in (None, commit):
                return ""
            return (
                f"repository {repository} must have the commit {commit} (models.allowedRepositories of the chart), not "
                "the revision of the session; remove revision from the session, or correct one of the two"
            )
        if not self._allows_repository(repository):
            return (
                f"repository {repository} of Hugging Face is not one that the platform allows "
                f"({', '.join(self.repositories or ()) or 'none'}); use one of those, or add it to "
                "models.allowedRepositories of the chart"
            )
        if self.require_digest and not _COMMIT.fullmatch(revision or ""):
            return (
                f"repository {repository} has no commit, and the platform requires one; set revision to the 40 "
                "hexadecimal digits of a commit"
            )
        return ""

    def _allows_repository(self, repository: str) -> bool:
        if self.repositories is None:
            # A platform that limits anything has not thought of repositories yet.
            return self.modules is None and self.files is None and not self.require_digest
        return repository in self.repositories or f"{repository.partition('/')[0]}/" in self.repositories

    def _file_problem(self, file: str, sha256: str | None) -> str:
        where, digest = _normal(file), self.digest_of(file)
        if digest is not None:
            if sha256 in (None, digest):
                return ""
            return (
                f"file {file} must have the digest {digest} (models.allowedFiles of the chart), not that of the "
                "session; remove sha256 from the session, or correct one of the two"
            )
        if self.files is not None and not any(where.startswith(entry) for entry in self.files if _is_directory(entry)):
            return (
                f"file {file} is not in a location that the platform allows "
                f"({', '.join(self.files or ()) or 'none'}); move it there, or add its location to "
                "models.allowedFiles of the chart"
            )
        if self.require_digest and sha256 is None:
            return f"file {file} has no digest, and the platform requires one; set sha256 beside it"
        return ""

    def session_problems(self, spec: InferenceSessionSpec) -> list[str]:
        """Why a session is forbidden, one sentence per module."""
        problems = []
        for module in spec.modules:
            problem = ""
            if module.model is not None:
                problem = self.source_problem(module.model)
            elif module.function is not None:
                problem = self.entrypoint_problem(module.function.entrypoint)
            elif module.endpoint is not None:
                problem = self.endpoint_problem(module.endpoint.url)
            if problem:
                problems.append(f"module {module.name}: {problem}")
        return problems


def policy_here() -> ModelPolicy:
    """The policy of this process. Raises ValidationError for an invalid one: then nothing is allowed."""
    text = os.environ.get(VARIABLE)
    return ModelPolicy.model_validate_json(text) if text else ModelPolicy()


def with_policy(runtime_env: dict[str, Any], policy: ModelPolicy) -> dict[str, Any]:
    """A Ray runtime environment with the policy; unchanged for the default policy."""
    if not policy.is_set:
        return runtime_env
    return {**runtime_env, "env_vars": {**runtime_env.get("env_vars", {}), VARIABLE: policy_text(policy)}}


def policy_text(policy: ModelPolicy) -> str:
    """The policy as the value of its variable."""
    return policy.model_dump_json(by_alias=True, exclude_defaults=True)


def _is_directory(entry: str) -> bool:
    return entry.endswith("/") and len(entry) > 1


def _file(entry: str) -> tuple[str, str] | None:
    """The normalized path and the digest of an entry that names a file."""
    found = _FILE.fullmatch(entry)
    return (where, found[2]) if found and (where := _normal(found[1])) else None


def _normal(file: str) -> str:
    """A normalized path or URI for prefix checks; empty if it could leave its prefix."""
    url = urlsplit(file)
    path = unquote(url.path) if url.scheme else file
    if ".." in path.split("/") or "?" in file or "#" in file or not path.startswith("/"):
        return ""
    if url.scheme and "::" in path:  # fsspec would read another location, too
        return ""
    path = posixpath.normpath(path)
    if url.scheme in ("", "file"):
        return "" if url.netloc else path
    return f"{url.scheme}://{url.netloc}{path}"
