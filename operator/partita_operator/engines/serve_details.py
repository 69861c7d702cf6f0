"""The answer of Serve's REST API about its applications: the fields that Partita reads. Others are left out."""

from typing import Any

from pydantic import BaseModel


class ReplicaDetails(BaseModel):
    """A replica. Times are in Unix seconds."""

    replica_id: str
    state: str
    node_id: str | None = None
    start_time_s: float


class DeploymentDetails(BaseModel):
    """A deployment and its replicas."""

    message: str
    target_num_replicas: int
    required_resources: dict[str, float]
    replicas: list[ReplicaDetails]


class ApplicationDetails(BaseModel):
    """An application, and the configuration that it was deployed with; None if Serve does not show it."""

    status: str
    message: str
    last_deployed_time_s: float
    source: str
    deployed_app_config: dict[str, Any] | None = None
    deployments: dict[str, DeploymentDetails]


class ServeDetails(BaseModel):
    """All of Serve. Without a controller Serve does not run."""

    controller_info: dict[str, Any] | None
    applications: dict[str, ApplicationDetails]
