"""Which code and which files sessions may name, as the platform has set it.

The operator refuses what is not allowed before anything is started for it, and hands the policy to everything that
loads models and functions, where it holds again.
"""

import os
import posixpath
from typing import Annotated, Any, Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, model_validator

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.module import ModelSource

VARIABLE: Final = "PARTITA_MODEL_POLICY"
"""The environment variable in which processes find it."""

MODULE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""What names of Python packages and modules look like."""


class ModelPolicy(SpecModel):
    """What sessions may name. Everything in the image, unless the platform has set something."""

    modules: tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...] | None = Field(
        default=None,
        description="Python packages and modules of which entrypoints may be, with all that is in them. Default: "
        "whatever can be imported.",
    )
    files: tuple[str, ...] | None = Field(
        default=None,
        description="What files of models may begin with: directories such as /models/, or URIs such as "
        "s3://models/. Default: any local file.",
    )
    require_digest: bool = Field(default=False, description="Whether a file needs its SHA-256 digest in the session.")

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        if wrong := [prefix for prefix in self.files or () if not prefix.endswith("/") or len(prefix) < 2]:
            raise ValueError(f"files: {', '.join(wrong)} must be a directory, ending with a slash, such as /models/")
        return self

    @property
    def is_set(self) -> bool:
        """Whether the platform has set anything."""
        return self != ModelPolicy()

    def entrypoint_problem(self, entrypoint: str) -> str:
        """Why an entrypoint may not be imported; empty if it may."""
        module = entrypoint.partition(":")[0]
        if self.allows_module(module):
            return ""
        return (
            f"entrypoint {entrypoint} is of none of the modules that the platform allows "
            f"({', '.join(self.modules or ()) or 'none'}); use one of those, or have {module.split('.')[0]} added to "
            "models.allowedModules of the chart"
        )

    def origin_problem(self, entrypoint: str, target: object) -> str:
        """Why what an entrypoint names may not be called, such as one that its module has imported; empty if it may."""
        origin = getattr(target, "__module__", None)
        if self.allows_module(origin):
            return ""
        return (
            f"entrypoint {entrypoint} is not made in its module but comes from {origin}, which the platform does not "
            "allow; name a callable of the module's own"
        )

    def allows_module(self, module: str | None) -> bool:
        """Whether entrypoints may be of the module."""
        if self.modules is None:
            return True
        return module is not None and any(module == m or module.startswith(f"{m}.") for m in self.modules)

    def source_problem(self, source: ModelSource) -> str:
        """Why a model may not be loaded; empty if it may."""
        if source.entrypoint is not None and (problem := self.entrypoint_problem(source.entrypoint)):
            return problem
        file = source.file or source.weights
        return self._file_problem(file, source.sha256) if file is not None else ""

    def _file_problem(self, file: str, sha256: str | None) -> str:
        where = _normal(file)
        if self.files is not None and not any(where.startswith(prefix) for prefix in self.files):
            return (
                f"file {file} is in none of the places that the platform allows "
                f"({', '.join(self.files or ()) or 'none'}); put it there, or have its place added to "
                "models.allowedFiles of the chart"
            )
        if self.require_digest and sha256 is None:
            return f"file {file} needs its digest, for the platform requires it: set sha256 beside it"
        return ""

    def session_problems(self, spec: InferenceSessionSpec) -> list[str]:
        """Why a session may not be served, by module."""
        problems = []
        for module in spec.modules:
            problem = ""
            if module.model is not None:
                problem = self.source_problem(module.model)
            elif module.function is not None:
                problem = self.entrypoint_problem(module.function.entrypoint)
            if problem:
                problems.append(f"module {module.name}: {problem}")
        return problems


def policy_here() -> ModelPolicy:
    """The policy of this process. Raises ValidationError for one that cannot be read: nothing is allowed then."""
    text = os.environ.get(VARIABLE)
    return ModelPolicy.model_validate_json(text) if text else ModelPolicy()


def with_policy(runtime_env: dict[str, Any], policy: ModelPolicy) -> dict[str, Any]:
    """A Ray runtime environment whose processes have the policy; unchanged if nothing is set."""
    if not policy.is_set:
        return runtime_env
    return {**runtime_env, "env_vars": {**runtime_env.get("env_vars", {}), VARIABLE: policy_text(policy)}}


def policy_text(policy: ModelPolicy) -> str:
    """The policy as the value of its variable."""
    return policy.model_dump_json(by_alias=True, exclude_defaults=True)


def _normal(file: str) -> str:
    """A path or URI without ways around a prefix; empty for one that leads elsewhere than it begins."""
    url = urlsplit(file)
    path = unquote(url.path) if url.scheme else file
    if ".." in path.split("/") or "?" in file or "#" in file or not path.startswith("/"):
        return ""
    path = posixpath.normpath(path)
    if url.scheme in ("", "file"):
        return "" if url.netloc else path
    return f"{url.scheme}://{url.netloc}{path}"
