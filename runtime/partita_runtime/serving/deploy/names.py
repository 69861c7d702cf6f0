"""Names of a session's Serve applications, and how to parse them.

    partita.<namespace>.<session>.frontend
    partita.<namespace>.<session>.<plan>.<module>.<pipeline>.<stage>
    partita.<namespace>.<session>.<pool>.<divisor>.<sub-cluster>.subcluster

A dot within a part is written as an underscore, which Kubernetes names never contain.
"""

import re
from typing import Final, NamedTuple

from partita_runtime.scheduling.events import StageRef

PREFIX: Final = "partita"
FRONTEND: Final = "frontend"
"""The last part of a frontend application's name, and the name of its deployment."""
STAGE: Final = "stage"
"""The name of the deployment in a stage application."""
SUBCLUSTER: Final = "subcluster"
"""The last part of a sub-cluster application's name, and the name of its deployment."""
PRELOADED: Final = {"RAY_preload_python_modules": "ray.serve._private.replica,partita_runtime.serving.frontend"}
"""Environment of Ray's nodes: modules that an idle process loads, so a frontend starts in it at once."""

_PART: Final = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?")


class ApplicationName(NamedTuple):
    """The parts of the name of one of Partita's Serve applications."""

    session_key: str
    """namespace/name of the InferenceSession."""
    plan: str | None
    """The PipelinePlan of a stage application; None for other applications, which stay when the plan changes."""
    stage: StageRef | None
    """The stage of a stage application."""
    subcluster: str | None = None
    """The sub-cluster of a sub-cluster application."""


def frontend_name(session_key: str) -> str:
    """The name of the session's frontend application."""
    return ".".join((PREFIX, *_session_parts(session_key), FRONTEND))


def stage_name(session_key: str, plan: str, stage: StageRef) -> str:
    """The name of the application that runs one stage of a plan.

    Raises ValueError if a part has characters that a name cannot have.
    """
    return ".".join(
        (
            PREFIX,
            *_session_parts(session_key),
            _written(plan),
            _written(stage.module),
            _written(stage.pipeline),
            str(stage.stage),
        )
    )


def subcluster_name(session_key: str, pool: str, divisor: int, subcluster: str) -> str:
    """The name of the application of a sub-cluster whose vGPUs are 1/divisor of the pool's accelerators.

    It has no plan in it: models change with plans, and the vGPUs stay.
    """
    parts = (_written(pool), str(divisor), _written(subcluster), SUBCLUSTER)
    return ".".join((PREFIX, *_session_parts(session_key), *parts))


def parse_application(name: str) -> ApplicationName | None:
    """Parse the name of a Serve application; None if it is not one of Partita's."""
    prefix, *parts = name.split(".")
    if prefix != PREFIX or not all(parts):
        return None
    read = [part.replace("_", ".") for part in parts]
    match read:
        case [namespace, session, "frontend"]:
            return ApplicationName(f"{namespace}/{session}", None, None)
        case [namespace, session, plan, module, pipeline, stage] if stage.isdecimal():
            return ApplicationName(f"{namespace}/{session}", plan, StageRef(module, pipeline, int(stage)))
        case [namespace, session, _pool, divisor, subcluster, "subcluster"] if divisor.isdecimal():
            return ApplicationName(f"{namespace}/{session}", None, None, subcluster)
    return None


def route_prefix(session_key: str) -> str:
    """The path under which the session's frontend answers, such as /default/traffic."""
    return f"/{session_key}"


def _session_parts(session_key: str) -> tuple[str, str]:
    namespace, _, name = session_key.partition("/")
    return _written(namespace), _written(name)


def _written(part: str) -> str:
    if not _PART.fullmatch(part):
        raise ValueError(f"{part!r} cannot be part of an application's name: only letters, digits, '-' and '.' can")
    return part.replace(".", "_")
