"""The REST API of a Ray cluster's dashboard: a thin client whose errors say what to do."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx

from partita_operator.engines.placement import RayNode
from partita_operator.ports import EngineUnavailableError

TIMEOUT_SECONDS: Final = 15.0
PUT_TIMEOUT_SECONDS: Final = 60.0
"""A first configuration starts Serve itself, which takes its time."""
_MOST_NODES: Final = 10_000
_SHOWN_CHARACTERS: Final = 500


class RayDashboard:
    """Asks one dashboard. Every call raises EngineUnavailableError if it does not answer with success."""

    def __init__(self, address: str, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.address = address.rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=self.address,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_seconds,
            trust_env=False,
        )

    async def get(self, path: str, **query: str | int) -> Any:
        """The decoded JSON of a GET."""
        return _decoded(await self.request("GET", path, params=query), self.address)

    async def put(self, path: str, content: Mapping[str, Any]) -> None:
        """PUTs JSON."""
        await self.request("PUT", path, json=content, timeout=PUT_TIMEOUT_SECONDS)

    async def post(self, path: str, content: Mapping[str, Any] | None = None) -> None:
        """POSTs JSON."""
        await self.request("POST", path, json=content)

    async def delete(self, path: str) -> None:
        """DELETEs."""
        await self.request("DELETE", path)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request; answers other than success raise RefusedError."""
        try:
            answer = await self._client.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} did not answer {method} {path} in time; see whether the Ray head "
                "is overloaded or its network cut off."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} cannot be reached ({error or type(error).__name__}); see whether "
                "the Ray head runs and the address is right (PARTITA_RAY_ADDRESS, or engine.address of the session)."
            ) from error
        if not answer.is_success:
            raise RefusedError(self.address, f"{method} {path}", answer.status_code, answer.text)
        return answer

    async def nodes(self) -> list[RayNode]:
        """The nodes that are alive."""
        answer = await self.get("/api/v0/nodes", detail="true", limit=_MOST_NODES)
        return [
            RayNode(node["node_id"], (node["start_time_ms"] or 0) / 1000, node["resources_total"] or {})
            for node in answer["data"]["result"]["result"]
            if node["state"] == "ALIVE"
        ]

    async def has_live_actor(self, class_name: str) -> bool:
        """Whether an actor of the class runs, or is about to, anywhere in the cluster."""
        answer = await self.get(
            "/api/v0/actors", filter_keys="class_name", filter_predicates="=", filter_values=class_name
        )
        return any(actor["state"] != "DEAD" for actor in answer["data"]["result"]["result"])

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def capacity(nodes: Iterable[RayNode]) -> dict[str, float]:
    """Total units of each resource on these nodes, such as CPU, GPU and custom resources."""
    total: dict[str, float] = {}
    for node in nodes:
        for resource, units in node.total.items():
            total[resource] = total.get(resource, 0.0) + units
    return total


class RefusedError(EngineUnavailableError):
    """The dashboard answered, but not with success."""

    def __init__(self, address: str, what: str, status: int, text: str) -> None:
        self.status = status
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            reason = (
                f"refuses the token ({text[:_SHOWN_CHARACTERS]}); set PARTITA_RAY_TOKEN, or PARTITA_RAY_TOKENS for "
                "an address that a session names, to the cluster's token"
            )
        else:
            reason = f"answered {what} with {status}: {text[-_SHOWN_CHARACTERS:].strip()}"
        super().__init__(f"The Ray dashboard at {address} {reason}")


def _decoded(answer: httpx.Response, address: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise EngineUnavailableError(
            f"{address} does not answer as a Ray dashboard does (no JSON); see whether the address is right."
        ) from error
