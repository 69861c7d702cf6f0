"""The model policy of the platform: which code and which files sessions may use.

The operator refuses a session before it starts anything for it, and passes the policy to every process that loads
models and functions, which check it again.
"""

import os
import posixpath
from typing import Annotated, Any, Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, model_validator

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.session.module import ModelSource

VARIABLE: Final = "PARTITA_MODEL_POLICY"
"""The environment variable with the policy of a process."""

MODULE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""What names of Python packages and modules look like."""


class ModelPolicy(SpecModel):
    """What sessions may use; by default, everything in the image."""

    modules: tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...] | None = Field(
        default=None,
        description="Python packages and modules that may contain entrypoints. Default: every importable module.",
    )
    files: tuple[str, ...] | None = Field(
        default=None,
        description="Allowed prefixes of model files: directories such as /models/, or URIs such as "
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
        """Why an entrypoint is forbidden; empty if it is allowed."""
        module = entrypoint.partition(":")[0]
        if self.allows_module(module):
            return ""
        return (
            f"entrypoint {entrypoint} is not in a module that the platform allows "
            f"({', '.join(self.modules or ()) or 'none'}); use one of those, or add {module.split('.')[0]} to "
            "models.allowedModules of the chart"
        )

    def origin_problem(self, entrypoint: str, target: object) -> str:
        """Why the target of an entrypoint is forbidden, for example an imported one; empty if it is allowed."""
        origin = getattr(target, "__module__", None)
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
        if source.entrypoint is not None and (problem := self.entrypoint_problem(source.entrypoint)):
            return problem
        file = source.file or source.weights
        return self._file_problem(file, source.sha256) if file is not None else ""

    def _file_problem(self, file: str, sha256: str | None) -> str:
        where = _normal(file)
        if self.files is not None and not any(where.startswith(prefix) for prefix in self.files):
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


def _normal(file: str) -> str:
    """A normalized path or URI for prefix checks; empty if it could leave its prefix."""
    url = urlsplit(file)
    path = unquote(url.path) if url.scheme else file
    if ".." in path.split("/") or "?" in file or "#" in file or not path.startswith("/"):
        return ""
    path = posixpath.normpath(path)
    if url.scheme in ("", "file"):
        return "" if url.netloc else path
    return f"{url.scheme}://{url.netloc}{path}"
