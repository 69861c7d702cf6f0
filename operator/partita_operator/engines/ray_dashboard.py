"""Client of the REST API of a Ray cluster's dashboard. Its errors say what to do."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import httpx
from pydantic import AliasPath, BaseModel, Field

from partita_operator.engines.bounded_client import Answer, BoundedClient, NoAnswerError, SilentServerError
from partita_operator.engines.circuit_breaker import CircuitBreaker
from partita_operator.engines.placement import RayNode, summed
from partita_operator.ports import EngineUnavailableError

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 15.0
"""From the connection to the last byte of an answer."""
PUT_TIMEOUT_SECONDS: Final = 60.0
"""The first configuration also starts Serve."""
MOST_BYTES: Final = 32 << 20
"""Of an answer. A session takes some tens of kB."""
_MOST_NODES: Final = 10_000
_LOGGED_CHARACTERS: Final = 500

T = TypeVar("T")


class RayDashboard:
    """One dashboard. Every call raises EngineUnavailableError unless the dashboard answers with success."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.address = address.rstrip("/")
        self.token = token
        self._client = BoundedClient(
            self.address,
            seconds=timeout_seconds,
            most_bytes=most_bytes,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            breaker=CircuitBreaker(),
        )

    async def get(self, path: str, read: Callable[[Any], T], **query: str | int) -> T:
        """What `read` makes of the JSON in the answer to a GET.

        If `read` raises one of the errors of data with another structure, the address is no Ray dashboard.
        """
        answer = await self.request("GET", path, params=query)
        try:
            return read(answer.json())
        except (NoAnswerError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise EngineUnavailableError(
                f"{self.address} does not answer {path} like a Ray dashboard. Check the address."
            ) from error

    async def put(self, path: str, content: Mapping[str, Any]) -> None:
        """PUT with a JSON body."""
        await self.request("PUT", path, json=content, seconds=PUT_TIMEOUT_SECONDS)

    async def post(self, path: str, content: Mapping[str, Any] | None = None) -> None:
        """POST with a JSON body."""
        await self.request("POST", path, json=content)

    async def delete(self, path: str) -> None:
        """DELETE."""
        await self.request("DELETE", path)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        """Any request. An answer other than success raises DashboardRefusedError."""
        try:
            answer = await self._client.request(method, path, **options)
        except SilentServerError as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} did not answer {method} {path} in time ({error}). Check whether "
                "the Ray head is overloaded and its network works."
            ) from error
        except NoAnswerError as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} cannot be reached ({error}). Check that the Ray head runs, and "
                "its address in the chart: ray.address, or ray.clusters."
            ) from error
        if not answer.is_success:
            # Only the log shows the text: it may be about other sessions, or come from another server.
            shown = ascii(answer.body[-_LOGGED_CHARACTERS:].decode(errors="replace"))
            logger.info("%s answers %s %s with %d: %s", self.address, method, path, answer.status, shown)
            raise DashboardRefusedError(self.address, f"{method} {path}", answer.status)
        return answer

    async def nodes(self) -> list[RayNode]:
        """The nodes that are alive."""
        found = await self.get("/api/v0/nodes", _Nodes.model_validate, detail="true", limit=_MOST_NODES)
        return [
            RayNode(node.node_id, (node.start_time_ms or 0) / 1000, node.resources_total or {})
            for node in found.listed
            if node.state == "ALIVE"
        ]

    async def has_live_actor(self, class_name: str) -> bool:
        """Whether an actor of the class runs or starts anywhere in the cluster."""
        query = {"filter_keys": "class_name", "filter_predicates": "=", "filter_values": class_name}
        found = await self.get("/api/v0/actors", _Actors.model_validate, **query)
        return any(actor.state != "DEAD" for actor in found.listed)

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.close()


def capacity(nodes: Iterable[RayNode]) -> dict[str, float]:
    """Total units of each resource on these nodes, such as CPU, GPU and custom resources."""
    return summed((node.total, 1) for node in nodes)


class DashboardRefusedError(EngineUnavailableError):
    """The dashboard answered with an error status."""

    def __init__(self, address: str, what: str, status: int) -> None:
        self.status = status
        if self.refuses_token:
            reason = (
                f"refuses the token ({status}). Put the cluster's token into the Secret of ray.tokenSecret of the "
                "chart (ray.tokensSecret for a cluster of ray.clusters, kuberay.tokenSecret for KubeRay with "
                "kuberay.authSecret)"
            )
        else:
            reason = f"answered {what} with {status}. The operator's log has its text"
        super().__init__(f"The Ray dashboard at {address} {reason}")

    @property
    def refuses_token(self) -> bool:
        """Whether the token is missing or wrong."""
        return self.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


class _Node(BaseModel):
    node_id: str
    state: str
    start_time_ms: float | None
    resources_total: dict[str, float] | None


class _Actor(BaseModel):
    state: str


class _Nodes(BaseModel):
    """The answer of Ray's state API about nodes."""

    listed: list[_Node] = Field(validation_alias=AliasPath("data", "result", "result"))


class _Actors(BaseModel):
    """The answer of Ray's state API about actors."""

    listed: list[_Actor] = Field(validation_alias=AliasPath("data", "result", "result"))
