"""Client of the REST API of a Ray cluster's dashboard. Its errors say what to do."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx

from partita_operator.engines.placement import RayNode, summed
from partita_operator.ports import EngineUnavailableError

TIMEOUT_SECONDS: Final = 15.0
PUT_TIMEOUT_SECONDS: Final = 60.0
"""The first configuration also starts Serve."""
_MOST_NODES: Final = 10_000
_QUOTED_CHARACTERS: Final = 500


class RayDashboard:
    """One dashboard. Every call raises EngineUnavailableError unless the dashboard answers with success."""

    def __init__(self, address: str, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.address = address.rstrip("/")
        self.token = token
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
        """PUT with a JSON body."""
        await self.request("PUT", path, json=content, timeout=PUT_TIMEOUT_SECONDS)

    async def post(self, path: str, content: Mapping[str, Any] | None = None) -> None:
        """POST with a JSON body."""
        await self.request("POST", path, json=content)

    async def delete(self, path: str) -> None:
        """DELETE."""
        await self.request("DELETE", path)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request. An answer other than success raises DashboardRefusedError."""
        try:
            answer = await self._client.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} did not answer {method} {path} in time. Check whether the Ray "
                "head is overloaded and its network works."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineUnavailableError(
                f"The Ray dashboard at {self.address} cannot be reached ({error or type(error).__name__}). Check "
                "that the Ray head runs, and the address: ray.address of the chart, or engine.address of the session."
            ) from error
        if not answer.is_success:
            raise DashboardRefusedError(self.address, f"{method} {path}", answer.status_code, answer.text)
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
        """Whether an actor of the class runs or starts anywhere in the cluster."""
        answer = await self.get(
            "/api/v0/actors", filter_keys="class_name", filter_predicates="=", filter_values=class_name
        )
        return any(actor["state"] != "DEAD" for actor in answer["data"]["result"]["result"])

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def capacity(nodes: Iterable[RayNode]) -> dict[str, float]:
    """Total units of each resource on these nodes, such as CPU, GPU and custom resources."""
    return summed((node.total, 1) for node in nodes)


class DashboardRefusedError(EngineUnavailableError):
    """The dashboard answered with an error status."""

    def __init__(self, address: str, what: str, status: int, text: str) -> None:
        self.status = status
        if self.refuses_token:
            reason = (
                f"refuses the token ({text[:_QUOTED_CHARACTERS]}). Put the cluster's token into the Secret of "
                "ray.tokenSecret of the chart (ray.tokensSecret for an address that a session names, "
                "kuberay.tokenSecret for KubeRay with kuberay.authSecret)"
            )
        else:
            reason = f"answered {what} with {status}: {text[-_QUOTED_CHARACTERS:].strip()}"
        super().__init__(f"The Ray dashboard at {address} {reason}")

    @property
    def refuses_token(self) -> bool:
        """Whether the token is missing or wrong."""
        return self.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


def _decoded(answer: httpx.Response, address: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise EngineUnavailableError(
            f"{address} does not answer like a Ray dashboard (no JSON). Check the address."
        ) from error
