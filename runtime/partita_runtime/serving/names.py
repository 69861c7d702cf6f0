"""Names of a session's Serve applications, and what can be read back from one.

    partita.<namespace>.<session>.frontend
    partita.<namespace>.<session>.<plan>.<module>.<pipeline>.<stage>

A dot inside of a part is written as an underscore, which Kubernetes names never contain.
"""

import re
from typing import Final, NamedTuple

from partita_runtime.scheduling.events import StageRef

PREFIX: Final = "partita"
FRONTEND: Final = "frontend"
"""The last part of a frontend application's name, and the name of its deployment."""
STAGE: Final = "stage"
"""The name of the deployment in a stage application."""

_PART: Final = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?")


class ApplicationName(NamedTuple):
    """What the name of one of Partita's Serve applications says."""

    session_key: str
    """namespace/name of the InferenceSession."""
    plan: str | None
    """The PipelinePlan that a stage application belongs to; None for the frontend."""
    stage: StageRef | None
    """The stage; None for the frontend."""


def frontend_name(session_key: str) -> str:
    """The name of the session's frontend application."""
    return ".".join((PREFIX, *_session_parts(session_key), FRONTEND))


def stage_name(session_key: str, plan: str, stage: StageRef) -> str:
    """The name of the application that runs one stage of a plan.

    Raises ValueError if a part has characters that cannot be read back.
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


def parse_application(name: str) -> ApplicationName | None:
    """What the name of a Serve application says; None if it is none of Partita's."""
    prefix, *parts = name.split(".")
    if prefix != PREFIX or not all(parts):
        return None
    read = [part.replace("_", ".") for part in parts]
    match read:
        case [namespace, session, "frontend"]:
            return ApplicationName(f"{namespace}/{session}", None, None)
        case [namespace, session, plan, module, pipeline, stage] if stage.isdecimal():
            return ApplicationName(f"{namespace}/{session}", plan, StageRef(module, pipeline, int(stage)))
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
