"""What runs on Ray Serve, read from its REST API, and the declarative configuration to write back.

A PUT replaces the configuration of all applications at once, so the one to write is made of everything that
was read, less this session's applications, plus its new ones. Whatever cannot be read back whole is never
written over.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from partita_operator.ports import EngineUnavailableError
from partita_runtime.serving.deploy.applications import parse_application
from partita_runtime.serving.deploy.relocation import Relocation

DELETING: Final = "DELETING"
DEPLOY_FAILED: Final = "DEPLOY_FAILED"
RUNNING: Final = "RUNNING"
"""Of an application that is as it should be, and of a replica that is up."""
STOPPING: Final = "STOPPING"

_CLUSTER_OPTIONS: Final = ("proxy_location", "http_options", "grpc_options", "target_capacity")
"""What a PUT sets besides the applications."""
_REDACTED: Final = "<redacted>"
"""What the dashboard shows in place of secrets to those that it takes for browsers."""

AppConfig = Mapping[str, Any]
"""One application of Serve's declarative configuration."""


class UnreadableConfigError(EngineUnavailableError):
    """What runs cannot be read back whole, so that writing would undo it."""


@dataclass(frozen=True)
class Replica:
    """One replica of a deployment."""

    state: str
    node: str | None
    """Id of the Ray node that it was placed on, if it has found one."""
    started: float
    """When it was asked for (Unix seconds)."""
    id: str = ""
    """Unique; a replica that is started anew has another."""

    @property
    def placed(self) -> bool:
        """Whether it has found a node."""
        return self.node is not None


@dataclass(frozen=True)
class Deployment:
    """One deployment as it runs."""

    message: str
    target: int
    """Replicas that Serve wants now."""
    resources: Mapping[str, float]
    """What each replica takes."""
    replicas: tuple[Replica, ...]

    @property
    def ready(self) -> int:
        """Replicas that are up."""
        return sum(replica.state == RUNNING for replica in self.replicas)


@dataclass(frozen=True)
class Application:
    """One application as it runs."""

    name: str
    status: str
    message: str
    deployed: float
    """When its configuration was last written (Unix seconds)."""
    declarative: bool
    """Whether it came by the REST API; a PUT leaves the others alone."""
    config: AppConfig | None
    """Its configuration as it was written."""
    deployments: tuple[Deployment, ...] = ()

    @property
    def ready(self) -> int:
        """Replicas of its one deployment that serve, one included that goes on until another has taken its place."""
        up = sum(deployment.ready for deployment in self.deployments)
        stands_in = self.leaving is not None and self.leaving.state == STOPPING
        return up + (stands_in and up < sum(deployment.target for deployment in self.deployments))

    @property
    def relocation(self) -> Relocation | None:
        """What was last done to spread its replicas over the nodes."""
        return told_relocation(self.config) if self.config else None

    @property
    def leaving(self) -> Replica | None:
        """The replica that is to go once another one has taken its place, while it is there."""
        told = self.relocation
        replicas = (replica for deployment in self.deployments for replica in deployment.replicas)
        return next((replica for replica in replicas if told and replica.id == told.replica), None)

    @property
    def session_key(self) -> str | None:
        """The session that it belongs to; None if it is none of Partita's."""
        parsed = parse_application(self.name)
        return parsed.session_key if parsed else None


@dataclass(frozen=True)
class ServeState:
    """Everything that runs on one Serve instance."""

    running: bool
    """Whether Serve runs at all."""
    applications: Mapping[str, Application] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def of_session(self, session_key: str) -> dict[str, Application]:
        """The session's applications, those being deleted too."""
        return {name: app for name, app in self.applications.items() if app.session_key == session_key}


def read_state(details: Mapping[str, Any]) -> ServeState:
    """The state in an answer of GET /api/serve/applications/."""
    return ServeState(
        running=bool(details["controller_info"]),
        applications={name: _application(name, app) for name, app in details["applications"].items()},
        options={name: details[name] for name in _CLUSTER_OPTIONS if details.get(name) is not None},
    )


def own_configs(state: ServeState, session_key: str) -> dict[str, AppConfig]:
    """The session's applications as Serve is told to run them, by name."""
    return {
        name: app.config
        for name, app in state.of_session(session_key).items()
        if app.config is not None and app.status != DELETING
    }


def told_relocation(config: AppConfig) -> Relocation | None:
    """What a stage's configuration says of spreading its replicas over the nodes."""
    parsed = parse_application(config["name"])
    if parsed is None or parsed.stage is None:
        return None
    try:
        return Relocation.model_validate(config["deployments"][0]["user_config"])
    except (KeyError, IndexError, ValidationError):
        return None


def config_to_put(
    state: ServeState, session_key: str, applications: Sequence[AppConfig], http_port: int
) -> dict[str, Any]:
    """The configuration with the session's applications replaced, and all others as they are.

    `http_port` is for a Serve that does not run yet. Raises UnreadableConfigError rather than leave out or change
    an application that somebody else wants.
    """
    kept = [
        _whole_config(app)
        for app in state.applications.values()
        if app.declarative and app.status != DELETING and app.session_key != session_key
    ]
    start = {"http_options": {"host": "0.0.0.0", "port": http_port}}
    return {**(state.options if state.running else start), "applications": [*kept, *applications]}


def _whole_config(app: Application) -> AppConfig:
    if app.config is None:
        raise UnreadableConfigError(
            f"Serve does not tell the configuration of application {app.name!r}, which a change would undo; nothing "
            "was changed. It passes by itself once the Serve controller has recovered."
        )
    if _REDACTED in json.dumps(app.config):
        raise UnreadableConfigError(
            f"The dashboard hides secrets of application {app.name!r}, which a change would overwrite; nothing was "
            "changed. Set RAY_DASHBOARD_REDACT_RUNTIME_ENV=0 on the Ray head, or remove what makes requests look as "
            "if they came from a browser."
        )
    return app.config


def _application(name: str, app: Mapping[str, Any]) -> Application:
    return Application(
        name=name,
        status=app["status"],
        message=app["message"],
        deployed=app["last_deployed_time_s"],
        declarative=app["source"] == "declarative",
        config=app.get("deployed_app_config"),
        deployments=tuple(
            Deployment(
                message=deployment["message"],
                target=deployment["target_num_replicas"],
                resources={name: units for name, units in deployment["required_resources"].items() if units},
                replicas=tuple(
                    Replica(r["state"], r.get("node_id"), r["start_time_s"], r["replica_id"])
                    for r in deployment["replicas"]
                ),
            )
            for deployment in app["deployments"].values()
        ),
    )
