"""ServingEngine on an existing Ray cluster, through the Serve REST API of its dashboard.

Serve has one declarative configuration for all applications, and no conditional write. So there is one engine object
for each cluster, and it makes one change at a time. Anyone else who writes to the same Serve by REST must keep
Partita's applications as they are, as Partita keeps theirs.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from partita_operator.engines.deployments import Deployments
from partita_operator.engines.frontend_client import FrontendAnswer, FrontendClient, serving_signals, session_url
from partita_operator.engines.monitoring_tokens import MonitoringTokens, with_monitoring_token
from partita_operator.engines.ray.spreading import spread_if_able, with_relocations
from partita_operator.engines.ray_dashboard import RayDashboard, capacity
from partita_operator.engines.rollout import FrontendReport, failed_for_long, next_step, rollout_target
from partita_operator.engines.serve_state import APPLICATIONS_PATH, ServeState, config_to_put, read_state
from partita_operator.engines.session_status import serving_status
from partita_operator.ports import EngineUnavailableError, ServingSignals, ServingSpec, ServingStatus, SessionBackend
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_name

CONTROLLER: Final = "ServeController"
"""Class of the actor that keeps Serve's state."""
VERSION_PATH: Final = "/api/version"
STATE_SECONDS: Final = 1.0
"""How old a reading may be if no change is based on it."""


class RayServeEngine:
    """One Ray cluster. `ports.ServingEngine` describes the methods.

    `serve_url` is where clients reach its HTTP proxy; None means the dashboard's host and Serve's port.
    `serve_http_port` is the proxy's port on a cluster where Serve does not run yet. `admits` says which namespaces may
    have sessions on it: `sessions` leaves out the applications of others, which may belong to another operator.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        serve_url: str | None = None,
        serve_http_port: int = 8000,
        options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
        admits: Callable[[str], bool] = lambda _: True,
        monitoring: MonitoringTokens | None = None,
    ) -> None:
        """Without `monitoring` tokens it makes its own, which are others after a restart."""
        self._dashboard = RayDashboard(address, token)
        self._monitoring = monitoring or MonitoringTokens()
        self._frontends = FrontendClient(self._monitoring)
        self._serve_url = serve_url
        self._serve_http_port = serve_http_port
        self._options = options
        self._admits = admits
        self._changing = asyncio.Lock()
        self._last_read: tuple[float, ServeState] | None = None
        self._progress: dict[str, str] = {}
        """The message of the last roll-out step, by session. A restarted operator has it after its first `apply`."""

    async def apply(self, spec: ServingSpec) -> None:
        """Takes the next step of the roll-out toward `spec`."""
        options = await with_monitoring_token(self._options, self._monitoring, spec.session.namespace)
        target = rollout_target(spec, options)
        key = target.session_key
        async with self._changing:
            state = await self._read()
            answer = await self._frontend_answer(state, key)
            report = FrontendReport(answer.signals.plan) if answer.signals else None
            nodes, now = await self._dashboard.nodes(), time.time()
            step = next_step(target, state, report, capacity(nodes), now)
            self._progress[key] = step.message
            deployments = with_relocations(step.deployments, state)
            if answer.signals and not step.message:
                able = answer.signals.can_make_place
                deployments, self._progress[key] = spread_if_able(deployments, state, key, nodes, now, able)
            await self._write(state, key, deployments)

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""
        state = await self._read(STATE_SECONDS)
        nodes = await self._dashboard.nodes()
        answer = await self._frontend_answer(state, session_key)
        return serving_status(
            session_key,
            state,
            answer,
            capacity(nodes),
            url=session_url(self._url(state), session_key),
            progress=self._progress.get(session_key, ""),
            now=time.time(),
        )

    async def signals(self, session_key: str) -> ServingSignals | None:
        """What the session's frontend measured over the last window; None if no frontend answers."""
        answer = await self._frontend_answer(await self._read(STATE_SECONDS), session_key)
        return serving_signals(answer.signals) if answer.signals else None

    async def ask(self, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        """Status and body of the plan's answer to a sample."""
        state = await self._read(STATE_SECONDS)
        return await self._frontends.ask(self._url(state), session_key, plan, sample)

    async def backend(self, session_key: str, serving: ServingStatus | None) -> SessionBackend | None:
        """None: the processes of a Ray cluster need not be pods of this Kubernetes cluster."""
        return None

    async def remove(self, session_key: str) -> bool:
        """Removes the frontend, then, once it has answered its last request, the stages."""
        async with self._changing:
            state = await self._read()
            left = state.of_session(session_key)
            if not left:
                self._progress.pop(session_key, None)
                await self._forget_unused(state, session_key.partition("/")[0])
                return True
            frontend = frontend_name(session_key)
            stages = state.deployments(session_key).without({frontend})
            await self._write(state, session_key, stages if frontend in left else Deployments())
            return False

    async def sessions(self) -> frozenset[str]:
        """Keys of all sessions that have applications on the engine."""
        state = await self._read(STATE_SECONDS)
        keys = {key for app in state.applications.values() if (key := app.session_key)}
        return frozenset(key for key in keys if self._admits(key.partition("/")[0]))

    async def cluster_id(self) -> str:
        """What the Ray cluster calls itself, whatever the address; another one after each start of its head."""
        return await self._dashboard.get(VERSION_PATH, lambda answer: str(answer["session_name"]))

    async def capacity(self) -> Mapping[str, float]:
        """Total units of each resource of the cluster, including CPUs."""
        return capacity(await self._dashboard.nodes())

    async def close(self) -> None:
        """Closes all connections."""
        await self._dashboard.close()
        await self._frontends.close()

    async def _read(self, may_be_old: float = 0.0) -> ServeState:
        if self._last_read and time.monotonic() - self._last_read[0] < may_be_old:
            return self._last_read[1]
        state = await self._dashboard.get(APPLICATIONS_PATH, read_state)
        if not state.running and await self._dashboard.has_live_actor(CONTROLLER):
            # The dashboard shows an empty Serve now. A write based on it would delete all applications.
            raise EngineUnavailableError(
                f"Ray Serve's controller at {self._dashboard.address} does not answer. Wait until it has recovered."
            )
        self._last_read = (time.monotonic(), state)
        return state

    async def _write(self, state: ServeState, session_key: str, deployments: Deployments) -> None:
        """Makes these the session's applications, unless they are already."""
        again = any(failed_for_long(app, time.time()) for app in state.of_session(session_key).values())
        if not again and deployments == state.deployments(session_key):
            return
        self._last_read = None
        content = config_to_put(state, session_key, deployments, self._serve_http_port)
        await self._dashboard.put(APPLICATIONS_PATH, content)

    async def _forget_unused(self, state: ServeState, namespace: str) -> None:
        """Without sessions here the namespace needs no monitoring token. With others it gets the same one again."""
        if not any((app.session_key or "").startswith(f"{namespace}/") for app in state.applications.values()):
            await self._monitoring.forget(namespace)

    async def _frontend_answer(self, state: ServeState, session_key: str) -> FrontendAnswer:
        if state.ready_frontend(session_key) is None:
            return FrontendAnswer(None)
        return await self._frontends.signals(self._url(state), session_key)

    def _url(self, state: ServeState) -> str:
        """Where clients reach the HTTP proxy."""
        if self._serve_url is not None:
            return self._serve_url
        host = urlsplit(self._dashboard.address).hostname or ""
        port = state.options.get("http_options", {}).get("port", self._serve_http_port)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"
