"""What runs on Ray Serve, read from its REST API, and the declarative configuration to write back.

A PUT replaces the configuration of all applications at once. So the new configuration consists of everything that was
read, without this session's applications, and with its new ones. A configuration that cannot be read completely is
never overwritten.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from partita_operator.engines.app_config import AppConfig, configured_relocation
from partita_operator.engines.deployments import Deployments, session_of
from partita_operator.engines.placement import Resources, of_pools, summed
from partita_operator.engines.serve_details import ApplicationDetails, ServeDetails
from partita_operator.ports import REDACTED, EngineUnavailableError
from partita_runtime.serving.deploy.applications import frontend_name
from partita_runtime.serving.deploy.relocation import Relocation

APPLICATIONS_PATH: Final = "/api/serve/applications/"
"""Of the dashboard's REST API."""
DELETING: Final = "DELETING"
DEPLOY_FAILED: Final = "DEPLOY_FAILED"
RUNNING: Final = "RUNNING"
"""Status of an application that runs as configured, and of a replica that serves."""
STOPPING: Final = "STOPPING"

_CLUSTER_OPTIONS: Final = ("proxy_location", "http_options", "grpc_options", "target_capacity")
"""What a PUT sets in addition to the applications."""


class UnreadableConfigError(EngineUnavailableError):
    """The present configuration cannot be read completely, so a write would undo parts of it."""


@dataclass(frozen=True)
class ServeReplica:
    """One replica of a deployment."""

    state: str
    node: str | None
    """Id of the Ray node that it is placed on; None while it waits for one."""
    started: float
    """When Serve requested it (Unix seconds)."""
    id: str = ""
    """Unique; a replica that is started again has another id."""

    @property
    def placed(self) -> bool:
        """Whether it has a node."""
        return self.node is not None


@dataclass(frozen=True)
class ServeDeployment:
    """One deployment as it runs."""

    message: str
    target: int
    """Number of replicas that Serve wants now."""
    resources: Resources
    """What each replica takes."""
    replicas: tuple[ServeReplica, ...]

    @property
    def ready(self) -> int:
        """Number of replicas that serve."""
        return sum(replica.state == RUNNING for replica in self.replicas)


@dataclass(frozen=True)
class ServeApplication:
    """One application as it runs."""

    name: str
    status: str
    message: str
    deployed: float
    """When its configuration was last written (Unix seconds)."""
    declarative: bool
    """Whether it is part of the declarative configuration; a PUT does not touch the others."""
    config: AppConfig | None
    """Its configuration as it was written."""
    deployments: tuple[ServeDeployment, ...] = ()

    @property
    def ready(self) -> int:
        """Replicas that serve, including one that stops but serves until another has taken its place."""
        serving = sum(deployment.ready for deployment in self.deployments)
        stands_in = self.leaving is not None and self.leaving.state == STOPPING
        return serving + (stands_in and serving < sum(deployment.target for deployment in self.deployments))

    @property
    def relocation(self) -> Relocation | None:
        """The last relocation of one of its replicas to another node."""
        return configured_relocation(self.config) if self.config else None

    @property
    def leaving(self) -> ServeReplica | None:
        """The replica that the relocation removes, as long as it exists."""
        relocation = self.relocation
        replicas = (replica for deployment in self.deployments for replica in deployment.replicas)
        return next((r for r in replicas if relocation is not None and r.id == relocation.replica), None)

    @property
    def session_key(self) -> str | None:
        """Key of the session that it belongs to; None if it is not an application of Partita."""
        return session_of(self.name)


@dataclass(frozen=True)
class ServeState:
    """Everything that runs on one Serve instance."""

    running: bool
    """Whether Serve runs at all."""
    applications: Mapping[str, ServeApplication] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def of_session(self, session_key: str) -> dict[str, ServeApplication]:
        """The session's applications, including those that Serve deletes now."""
        return {name: app for name, app in self.applications.items() if app.session_key == session_key}

    def deployments(self, session_key: str) -> Deployments:
        """The session's applications as Serve is configured to run them."""
        apps = self.of_session(session_key).values()
        return Deployments(app.config for app in apps if app.config is not None and app.status != DELETING)

    def ready_frontend(self, session_key: str) -> ServeApplication | None:
        """The session's frontend, if one of its replicas serves."""
        frontend = self.applications.get(frontend_name(session_key))
        return frontend if frontend is not None and frontend.ready > 0 else None

    @property
    def resource_names(self) -> set[str]:
        """All resources that replicas take."""
        return {resource for deployment in self._deployments() for resource in deployment.resources}

    def placed_resources(self) -> dict[str, float]:
        """What the replicas take of their pools that have a node."""
        placed = summed((d.resources, sum(replica.placed for replica in d.replicas)) for d in self._deployments())
        return of_pools(placed)

    def claimed_resources(self, without: Collection[str]) -> dict[str, float]:
        """What all replicas take of their pools, placed or not, that run or should run.

        Except those of the applications named.
        """
        return of_pools(summed((d.resources, max(d.target, len(d.replicas))) for d in self._deployments(without)))

    def resources_on(self, node_id: str) -> dict[str, float]:
        """What the replicas on a node take."""
        return summed((d.resources, sum(r.node == node_id for r in d.replicas)) for d in self._deployments())

    def _deployments(self, without: Collection[str] = ()) -> list[ServeDeployment]:
        apps = (app for name, app in self.applications.items() if name not in without)
        return [deployment for app in apps for deployment in app.deployments]


def read_state(details: Any) -> ServeState:
    """The state in a response to GET /api/serve/applications/. Raises ValueError if it has another structure."""
    answer = ServeDetails.model_validate(details)
    return ServeState(
        running=bool(answer.controller_info),
        applications={name: _application(name, app) for name, app in answer.applications.items()},
        options={name: details[name] for name in _CLUSTER_OPTIONS if details.get(name) is not None},
    )


def config_to_put(state: ServeState, session_key: str, deployments: Deployments, http_port: int) -> dict[str, Any]:
    """The configuration with the session's applications replaced and all others unchanged.

    `http_port` is for a Serve that does not run yet. Raises UnreadableConfigError if the configuration of
    an application of another owner is not known completely.
    """
    kept = [
        _complete_config(app)
        for app in state.applications.values()
        if app.declarative and app.status != DELETING and app.session_key != session_key
    ]
    start = {"http_options": {"host": "0.0.0.0", "port": http_port}}
    return {**(state.options if state.running else start), "applications": [*kept, *deployments.values()]}


def _complete_config(app: ServeApplication) -> AppConfig:
    if app.config is None:
        raise UnreadableConfigError(
            f"Serve does not show the configuration of application {app.name!r}, and a write would delete it; nothing "
            "was changed. Wait until the Serve controller has recovered."
        )
    if REDACTED in json.dumps(_environments(app.config) if app.session_key else app.config):
        raise UnreadableConfigError(
            f"The dashboard hides secrets of application {app.name!r}, and a write would overwrite them; nothing was "
            "changed. Set RAY_DASHBOARD_REDACT_RUNTIME_ENV=0 on the Ray head, or remove the proxy that makes requests "
            "look as if they came from a browser."
        )
    return app.config


def _environments(config: AppConfig) -> list[Any]:
    """The parts of a session's application that the operator's settings decide. The others are the session's words."""
    options = (deployment.get("ray_actor_options") or {} for deployment in config.get("deployments", ()))
    return [config.get("runtime_env"), *(option.get("runtime_env") for option in options)]


def _application(name: str, app: ApplicationDetails) -> ServeApplication:
    return ServeApplication(
        name=name,
        status=app.status,
        message=app.message,
        deployed=app.last_deployed_time_s,
        declarative=app.source == "declarative",
        config=app.deployed_app_config,
        deployments=tuple(
            ServeDeployment(
                message=deployment.message,
                target=deployment.target_num_replicas,
                resources={name: units for name, units in deployment.required_resources.items() if units},
                replicas=tuple(
                    ServeReplica(r.state, r.node_id, r.start_time_s, r.replica_id) for r in deployment.replicas
                ),
            )
            for deployment in app.deployments.values()
        ),
    )
