"""The other versions of a session: where their requests go now, and the condition VersionsReady."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType, is_true
from partita_api.fields.quantity import Percent
from partita_api.inferencesession import EngineType, InferenceSession
from partita_api.session.versions import Shadow, Version, VersionStatus
from partita_operator.reconcile.actions import Event
from partita_operator.reconcile.findings import Finding, condition, listed
from partita_operator.reconcile.promotion import Step, promotion_step
from partita_operator.reconcile.reasons import Reason, Severity
from partita_operator.reconcile.world import SessionWorld
from partita_runtime.serving.deploy.epochs import GIVEN_UP_AFTER_SLOS
from partita_runtime.serving.deploy.names import route_prefix
from partita_runtime.serving.deploy.version_routes import ShadowRoute, VersionRoute

_NO_SHARE: Final = Percent("0%")
_TRANSFER_SECONDS: Final = 5.0


@dataclass(frozen=True)
class SessionVersions:
    """The versions of a session now."""

    routes: tuple[VersionRoute, ...] = ()
    statuses: tuple[VersionStatus, ...] = ()
    finding: Finding | None = None
    """The condition VersionsReady; None for a session that never had versions."""
    events: tuple[Event, ...] = ()

    @property
    def shares(self) -> str | None:
        """The shares of the versions in one text, such as `2=10% 3=100%-copied`; None without versions."""
        return " ".join(_share(version) for version in self.statuses) or None


def _share(version: VersionStatus) -> str:
    return f"{version.name}={version.share}" if version.copies is None else f"{version.name}={version.copies}-copied"


@dataclass(frozen=True)
class _VersionObstacle:
    """Why a version does not get its share."""

    problem: str
    """It follows the version's name."""
    reason: Reason
    blocks: bool = True
    """Whether nothing at all is sent to it."""


@dataclass(frozen=True)
class _VersionState:
    """A version now."""

    version: Version
    obstacle: _VersionObstacle | None
    step: Step | None
    """With promotion, unless there is an obstacle."""

    @property
    def share(self) -> Percent:
        """What it gets while nothing is in its way."""
        return self.version.share if self.step is None else self.step.share


def session_versions(world: SessionWorld, now: datetime) -> SessionVersions:
    """Where the requests for other versions of the session go."""
    versions = world.session.spec.versions
    if not versions:
        before = condition(world.session.status.conditions, ConditionType.VERSIONS_READY)
        return SessionVersions(finding=_no_versions() if before is not None else None)
    states = [_state(world, version, now) for version in versions]
    return SessionVersions(
        routes=tuple(_route(world, state) for state in states),
        statuses=tuple(_status(world.session, state) for state in states),
        finding=_finding(states),
        events=tuple(event for state in states for event in _promotion_events(world.session, state)),
    )


def _state(world: SessionWorld, version: Version, now: datetime) -> _VersionState:
    obstacle, other = _obstacle(world, version), _session_of(world, version)
    if obstacle is not None or other is None:
        return _VersionState(version, obstacle, None)
    return _VersionState(version, None, promotion_step(version, _before(world.session, version), other, now))


def _before(session: InferenceSession, version: Version) -> VersionStatus | None:
    return next((status for status in session.status.versions if status.name == version.name), None)


def _promotion_events(session: InferenceSession, state: _VersionState) -> tuple[Event, ...]:
    """The event of a version that has reached another step."""
    before = _before(session, state.version)
    if state.step is None or before is None or before.promoted in (None, state.step.share):
        return ()
    message = f"Version {state.version.name} gets {state.step.share} of the requests, after {before.promoted}."
    return (Event(Severity.NORMAL, "VersionPromoted", message),)


def _obstacle(world: SessionWorld, version: Version) -> _VersionObstacle | None:
    session, other = world.session, _session_of(world, version)
    if other is None:
        return _VersionObstacle("does not exist", Reason.VERSION_MISSING)
    if other.key == session.key:
        return _VersionObstacle("is this session itself", Reason.VERSION_MISSING)
    if other.metadata.deletion_timestamp is not None:
        return _VersionObstacle("is being deleted", Reason.VERSION_MISSING)
    if _engine(world, other) != _engine(world, session):
        return _VersionObstacle("has another engine", Reason.VERSION_ELSEWHERE)
    if world.serving is None or world.serving.url is None:
        return _VersionObstacle("cannot be reached before this session has a frontend", Reason.VERSION_NOT_READY)
    if not is_true(other.status.conditions, ConditionType.READY):
        return _VersionObstacle("is not ready", Reason.VERSION_NOT_READY, blocks=False)
    if not _passes_its_check(other):
        return _VersionObstacle("has not passed its quality check", Reason.VERSION_UNCHECKED, blocks=False)
    if _is_withdrawn(session, version, other):
        return _VersionObstacle("has missed its SLO", Reason.VERSION_WITHDRAWN, blocks=False)
    return None


def _passes_its_check(other: InferenceSession) -> bool:
    """Whether the answers of the session are as expected; a session without a check passes it."""
    return other.spec.quality is None or is_true(other.status.conditions, ConditionType.QUALITY_MET)


def _is_withdrawn(session: InferenceSession, version: Version, other: InferenceSession) -> bool:
    """Whether its share is taken away: without requests it meets its SLO, so this stays until the spec changes."""
    if not version.withdraw_if_slo_missed and version.promotion is None:
        return False
    found = condition(other.status.conditions, ConditionType.SLO_MET)
    missed = found is not None and found.status == ConditionStatus.FALSE
    return missed or _withdrawn_before(session, version) is not None


def _session_of(world: SessionWorld, version: Version) -> InferenceSession | None:
    return world.cluster.sessions.get(f"{world.session.namespace}/{version.session}")


def _engine(world: SessionWorld, session: InferenceSession) -> tuple[EngineType, str | None]:
    return session.spec.engine.type_or(world.settings.default_engine), session.spec.engine.cluster


def _route(world: SessionWorld, state: _VersionState) -> VersionRoute:
    version, obstacle = state.version, state.obstacle
    other = _session_of(world, version)
    return VersionRoute(
        name=version.name,
        session=version.session,
        url="" if other is None or (obstacle is not None and obstacle.blocks) else _url(world, other),
        problem=obstacle.problem if obstacle is not None else "",
        share=state.share.fraction,
        header=version.header,
        shadow=_shadow(version.shadow),
        answer_seconds=_answer_seconds(other) if other is not None else 0.0,
    )


def _shadow(shadow: Shadow | None) -> ShadowRoute | None:
    if shadow is None:
        return None
    return ShadowRoute(
        share=shadow.share.fraction,
        absolute=float(shadow.absolute_tolerance),
        relative=float(shadow.relative_tolerance),
    )


def _url(world: SessionWorld, other: InferenceSession) -> str:
    """Where Serve's proxy of the common engine has the other session."""
    assert world.serving is not None and world.serving.url is not None  # noqa: PT018 - `_obstacle` checks it
    return world.serving.url.removesuffix(route_prefix(world.session.key)) + route_prefix(other.key)


def _answer_seconds(other: InferenceSession) -> float:
    """How long its frontends work on a request, or hold it, at most."""
    zero = other.spec.autoscaling.scale_to_zero
    held = 0 if zero is None else zero.hold_seconds
    return GIVEN_UP_AFTER_SLOS * other.spec.slo.latency_ms / 1000 + held + _TRANSFER_SECONDS


def _status(session: InferenceSession, state: _VersionState) -> VersionStatus:
    version, obstacle, before = state.version, state.obstacle, _before(session, state.version)
    withdrawn = obstacle is not None and obstacle.reason is Reason.VERSION_WITHDRAWN
    copies = version.shadow.share if version.shadow is not None else None
    return VersionStatus(
        name=version.name,
        session=version.session,
        ready=obstacle is None,
        share=state.share if obstacle is None else _NO_SHARE,
        copies=copies if copies is None or obstacle is None else _NO_SHARE,
        promoted=None if withdrawn else _promoted(state, before),
        promoted_time=None if state.step is None else state.step.since,
        withdrawn_generation=session.metadata.generation if withdrawn else _withdrawn_before(session, version),
        message="" if obstacle is None else f"Session {version.session} {obstacle.problem}.",
    )


def _promoted(state: _VersionState, before: VersionStatus | None) -> str | None:
    """The share of the step; of the last one while the version gets none."""
    if state.step is not None:
        return state.step.share
    return before.promoted if before is not None and state.version.promotion is not None else None


def _withdrawn_before(session: InferenceSession, version: Version) -> int | None:
    """The generation for which it was withdrawn, kept while another obstacle hides that; None for an earlier one."""
    before, generation = _before(session, version), session.metadata.generation
    return generation if before is not None and before.withdrawn_generation == generation else None


def _finding(states: Sequence[_VersionState]) -> Finding:
    obstacles = [(state.version, state.obstacle) for state in states if state.obstacle is not None]
    if not obstacles:
        shares = listed([_said(state) for state in states])
        return Finding(ConditionType.VERSIONS_READY, True, Reason.VERSIONS_READY, f"{shares}.")
    problems = listed(
        [f"Session {version.session} of version {version.name} {found.problem}" for version, found in obstacles], ". "
    )
    message = (
        f"{problems}. Shares of these versions stay with this session, and requests that choose one of them fail. "
        "Correct spec.versions or the other session."
    )
    _, first = obstacles[0]
    return Finding(ConditionType.VERSIONS_READY, False, first.reason, message)


def _said(state: _VersionState) -> str:
    version, step = state.version, state.step
    if version.shadow is not None:
        return f"copies of {version.shadow.share} go to version {version.name}"
    share = f"{state.share} of the requests go to version {version.name}"
    if step is None or step.following is None:
        return share
    return f"{share} ({step.following} from {step.ends} on, if it answers requests and meets its SLO)"


def _no_versions() -> Finding:
    message = "The session has no spec.versions: it answers all its requests itself."
    return Finding(ConditionType.VERSIONS_READY, True, Reason.NO_VERSIONS, message)
