"""ServingEngine on an existing Ray cluster, through the Serve REST API of its dashboard.

Serve knows one declarative configuration for all applications, and no way to change it only if nobody else did
meanwhile; so there is one engine object for each cluster, and its changes wait for each other. Whoever else writes
to the same Serve by REST has to keep Partita's applications as they read them, as Partita keeps theirs.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from partita_api.inferencesession import InferenceSession
from partita_operator.engines.failure_diagnosis import diagnosis
from partita_operator.engines.frontend_client import Answer, Frontends, session_signals, session_url
from partita_operator.engines.ray_dashboard import RayDashboard, capacity
from partita_operator.engines.rollout import FrontendReport, failed_for_long, next_step, told_plan, wanted_applications
from partita_operator.engines.serve_state import (
    AppConfig,
    Application,
    ServeState,
    config_to_put,
    own_configs,
    read_state,
)
from partita_operator.engines.shared_vgpus import stages_of
from partita_operator.engines.spreading import spread_if_able, with_relocations
from partita_operator.ports import (
    EngineUnavailableError,
    OperatorSettings,
    PlanServing,
    ServingSpec,
    ServingStatus,
    SessionSignals,
    StageReadiness,
)
from partita_runtime.models.policy import with_policy
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_name

APPLICATIONS: Final = "/api/serve/applications/"
CONTROLLER: Final = "ServeController"
"""Class of the actor that Serve's state is read from."""
STATE_SECONDS: Final = 1.0
"""How old a reading may be where nothing is changed by it."""


def serving_options(settings: OperatorSettings) -> ServingOptions:
    """How the processes of sessions run, on whichever cluster."""
    runtime_env = with_policy(dict(settings.runtime_env), settings.model_policy)
    return ServingOptions(runtime_env=runtime_env, transport=settings.transport)


class RayServeEngines:
    """The Ray clusters that sessions may be served on, each with its own token and no other's."""

    def __init__(self, settings: OperatorSettings) -> None:
        options = serving_options(settings)
        self._options = options
        self._tokens = {address.rstrip("/"): token for address, token in settings.ray_tokens.items()}
        self._own: RayServeEngine | None = None
        self._engines: dict[str, RayServeEngine] = {}
        if settings.ray_address:
            self._own = RayServeEngine(
                settings.ray_address, settings.ray_token, settings.serve_url, settings.serve_http_port, options
            )
            self._engines[settings.ray_address.rstrip("/")] = self._own

    def of(self, session: InferenceSession) -> "RayServeEngine | None":
        """The engine that the session names, or the operator's own, if any; the same object for the same address."""
        address = session.spec.engine.address
        if address is None:
            return self._own
        address = address.rstrip("/")
        if address not in self._engines:
            self._engines[address] = RayServeEngine(address, self._tokens.get(address), options=self._options)
        return self._engines[address]

    def known(self) -> tuple["RayServeEngine", ...]:
        """The operator's own engine, if any, and then every other one that `of` has given."""
        return tuple(self._engines.values())

    async def close(self) -> None:
        """Closes all connections."""
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))


class RayServeEngine:
    """One Ray cluster; `ServingEngine` says what its methods do.

    `serve_url` is where clients reach its HTTP proxy; None takes the dashboard's host and Serve's own port.
    `serve_http_port` is the proxy's port on a cluster where Serve does not run yet.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        serve_url: str | None = None,
        serve_http_port: int = 8000,
        options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        self._dashboard = RayDashboard(address, token)
        self._frontends = Frontends()
        self._serve_url = serve_url
        self._serve_http_port = serve_http_port
        self._options = options
        self._changing = asyncio.Lock()
        self._last_read: tuple[float, ServeState] | None = None
        self._progress: dict[str, str] = {}
        """What the last `apply` of each session said. It is lost with the operator, and the next one says it again."""

    async def apply(self, spec: ServingSpec) -> None:
        """Takes the next step toward what `spec` says; `rollout` decides which."""
        wanted = wanted_applications(spec, self._options)
        async with self._changing:
            state = await self._read()
            answer = await self._ask_frontend(state, wanted.session_key)
            report = FrontendReport(answer.signals.plan) if answer.signals else None
            nodes, now = await self._dashboard.nodes(), time.time()
            step = next_step(wanted, state, report, capacity(nodes), now)
            self._progress[wanted.session_key] = step.message
            applications = with_relocations(step.applications, state)
            if answer.signals and not step.message:
                able = answer.signals.can_make_place
                applications, problem = spread_if_able(applications, state, wanted.session_key, nodes, now, able)
                self._progress[wanted.session_key] = problem
            await self._write(state, wanted.session_key, applications)

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""
        state = await self._read(STATE_SECONDS)
        nodes = await self._dashboard.nodes()
        answer = await self._ask_frontend(state, session_key)
        return serving_status(
            session_key,
            state,
            answer,
            capacity(nodes),
            url=session_url(self._url(state), session_key),
            progress=self._progress.get(session_key, ""),
            now=time.time(),
        )

    async def signals(self, session_key: str) -> SessionSignals | None:
        """What the session's frontend measured over the last window; None if there is no frontend that answers."""
        answer = await self._ask_frontend(await self._read(STATE_SECONDS), session_key)
        return session_signals(answer.signals) if answer.signals else None

    async def remove(self, session_key: str) -> bool:
        """Takes the frontend down, and once it has answered its last request, the stages."""
        async with self._changing:
            state = await self._read()
            left = state.of_session(session_key)
            if not left:
                self._progress.pop(session_key, None)
                return True
            frontend = frontend_name(session_key)
            stages = [config for name, config in own_configs(state, session_key).items() if name != frontend]
            await self._write(state, session_key, stages if frontend in left else [])
            return False

    async def sessions(self) -> frozenset[str]:
        """Keys of all sessions that have applications on the engine."""
        state = await self._read(STATE_SECONDS)
        return frozenset(key for app in state.applications.values() if (key := app.session_key))

    async def capacity(self) -> Mapping[str, float]:
        """Total units of each resource in the engine's cluster, CPUs and the like included."""
        return capacity(await self._dashboard.nodes())

    async def close(self) -> None:
        """Closes all connections."""
        await self._dashboard.close()
        await self._frontends.close()

    async def _read(self, may_be_old: float = 0.0) -> ServeState:
        if self._last_read and time.monotonic() - self._last_read[0] < may_be_old:
            return self._last_read[1]
        state = read_state(await self._dashboard.get(APPLICATIONS))
        if not state.running and await self._dashboard.has_live_actor(CONTROLLER):
            # The dashboard then shows an empty Serve, which a change would make true.
            raise EngineUnavailableError(
                f"Ray Serve's controller at {self._dashboard.address} does not answer; it may be recovering."
            )
        self._last_read = (time.monotonic(), state)
        return state

    async def _write(self, state: ServeState, session_key: str, applications: Sequence[AppConfig]) -> None:
        """Makes these the session's applications, unless they are."""
        again = any(failed_for_long(app, time.time()) for app in state.of_session(session_key).values())
        if not again and {app["name"]: app for app in applications} == own_configs(state, session_key):
            return
        self._last_read = None
        await self._dashboard.put(APPLICATIONS, config_to_put(state, session_key, applications, self._serve_http_port))

    async def _ask_frontend(self, state: ServeState, session_key: str) -> Answer:
        frontend = state.applications.get(frontend_name(session_key))
        if frontend is None or frontend.ready == 0:
            return Answer(None)
        return await self._frontends.ask(self._url(state), session_key)

    def _url(self, state: ServeState) -> str:
        """Where clients reach the HTTP proxy."""
        if self._serve_url is not None:
            return self._serve_url
        host = urlsplit(self._dashboard.address).hostname or ""
        port = state.options.get("http_options", {}).get("port", self._serve_http_port)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serving_status(
    session_key: str,
    state: ServeState,
    answer: Answer,
    capacity: Mapping[str, float],
    *,
    url: str,
    progress: str,
    now: float,
) -> ServingStatus:
    """The session's applications as the reconcilers see them."""
    frontend = state.applications.get(frontend_name(session_key))
    plans: dict[str, list[StageReadiness]] = {}
    for app in state.of_session(session_key).values():
        message = diagnosis(app, state, capacity, now)
        for plan, stages in stages_of(app.config if app.config is not None else {"name": app.name}).items():
            readiness = [StageReadiness(*stage, ready=app.ready, message=message) for stage in stages]
            plans.setdefault(plan, []).extend(readiness)
    messages = [progress]
    if frontend is not None:
        messages.append(_about_frontend(diagnosis(frontend, state, capacity, now) or answer.problem))
    if answer.signals:
        messages += [answer.signals.message, *answer.signals.warnings]
    return ServingStatus(
        plans=tuple(PlanServing(plan, tuple(stages)) for plan, stages in sorted(plans.items())),
        serving_plan=_serving_plan(answer, frontend, plans),
        frontend_ready=frontend is not None and frontend.ready > 0,
        url=url if frontend is not None else None,
        grpc_address=answer.signals.grpc_address if answer.signals else None,
        http_address=answer.signals.http_address if answer.signals else None,
        message=" ".join(message for message in messages if message),
    )


def _about_frontend(problem: str) -> str:
    return f"The frontend: {problem}" if problem else ""


def _serving_plan(answer: Answer, frontend: Application | None, plans: Collection[str]) -> str | None:
    """What the frontend says it uses; while it cannot be asked, what it must use if there is only one plan."""
    if answer.signals:
        return answer.signals.plan
    told = told_plan(frontend.config) if frontend else None
    return told if answer.problem and set(plans) == {told} else None
