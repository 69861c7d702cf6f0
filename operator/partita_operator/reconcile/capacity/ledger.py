"""Which session has which accelerators, indexed by pool: a pass does not have to read every session.

A ledger belongs to one state of the cluster and never changes. The ledger of the next state is made from it. Only
sessions that changed, or whose plans changed, are counted again, and only their pools are sorted again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan

Rank = tuple[int, str, str]
"""The order in which sessions get accelerators: by priority (highest first), age (oldest first), key."""
Owner = tuple[str | None, str, str]
"""Namespace, name and uid of a session."""
Plans = Mapping[str, PipelinePlan]
"""Plans of one session by name."""

NO_PLANS: Plans = {}


@dataclass(frozen=True)
class Account:
    """What one session has, as far as it matters to other sessions."""

    key: str
    namespace: str
    rank: Rank
    held: Mapping[str, int]
    """What it holds by pool: the larger need of its current and its pending plan."""
    claimed: Mapping[str, int]
    """What it may take from sessions of lower priority, by pool: what it holds, without a plan that is held back."""
    goal: Mapping[str, int]
    """The planned replicas of its next plan, by pool. Only a change of its plans changes it."""
    greedy: bool
    """Whether it maximises throughput and uses whatever it can get."""

    @property
    def priority(self) -> int:
        """The session's priority."""
        return -self.rank[0]

    @property
    def pools(self) -> frozenset[str]:
        """Names of the pools in which it has something."""
        return frozenset(self.held.keys() | self.claimed.keys() | self.goal.keys())


@dataclass(frozen=True)
class Ledger:
    """The accounts of all sessions of one state of the cluster."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    """By session key."""
    owned: Mapping[Owner, Plans] = field(default_factory=dict)
    """The plans of each session that has plans; without those of an earlier session of the same name."""
    greedy: tuple[Account, ...] = ()
    """Sessions that maximise throughput and are not being deleted, by rank."""
    _on: Mapping[str, tuple[Account, ...]] = field(default_factory=dict)
    _sessions: Mapping[str, InferenceSession] = field(default_factory=dict)
    _plans: Mapping[str, PipelinePlan] = field(default_factory=dict)

    def on(self, pool: str) -> tuple[Account, ...]:
        """The sessions that have something of the pool, in order."""
        return self._on.get(pool, ())

    def after(self, sessions: Mapping[str, InferenceSession], plans: Mapping[str, PipelinePlan]) -> Self:
        """The ledger of the next state, with these sessions and plans (both by namespace/name)."""
        owned = {**self.owned, **self._changed_plans(plans)}
        accounts = dict(self.accounts)
        changed: list[tuple[Account | None, Account | None]] = [
            (accounts.pop(key), None) for key in self._sessions.keys() - sessions.keys()
        ]
        for key in self._changed_sessions(sessions, owned):
            account = account_of(sessions[key], owned.get(owner_of(sessions[key]), NO_PLANS))
            if account != accounts.get(key):
                changed.append((accounts.get(key), account))
                accounts[key] = account
        return type(self)(
            accounts=accounts,
            owned={owner: found for owner, found in owned.items() if found},
            greedy=_greedy(accounts) if any(a.greedy for pair in changed for a in pair if a) else self.greedy,
            _on=_sorted_by_rank(self._on, changed),
            _sessions=sessions,
            _plans=plans,
        )

    def _changed_sessions(self, sessions: Mapping[str, InferenceSession], owned: Mapping[Owner, Plans]) -> set[str]:
        """Keys of sessions that changed or have other plans."""
        changed = {key for key, session in sessions.items() if self._sessions.get(key) is not session}
        for owner, plans in owned.items():
            if self.owned.get(owner) is not plans:
                changed.add(f"{owner[0] or 'default'}/{owner[1]}")
        return changed & sessions.keys()

    def _changed_plans(self, plans: Mapping[str, PipelinePlan]) -> dict[Owner, Plans]:
        """The plans of sessions whose plans changed; possibly empty."""
        gone = [self._plans[key] for key in self._plans.keys() - plans.keys()]
        new = [(self._plans.get(key), plan) for key, plan in plans.items() if self._plans.get(key) is not plan]
        touched: dict[Owner, dict[str, PipelinePlan]] = {}

        def plans_of(plan: PipelinePlan) -> dict[str, PipelinePlan]:
            owner = (plan.metadata.namespace, plan.spec.session.name, plan.spec.session.uid)
            return touched.setdefault(owner, dict(self.owned.get(owner, NO_PLANS)))

        for plan in (*gone, *(before for before, _ in new if before is not None)):
            del plans_of(plan)[plan.metadata.name]
        for _, plan in new:
            plans_of(plan)[plan.metadata.name] = plan
        # In the order of their names.
        return {owner: dict(sorted(found.items())) for owner, found in touched.items()}


def owner_of(session: InferenceSession) -> Owner:
    """How the session's own plans name their session."""
    meta = session.metadata
    return meta.namespace, meta.name, meta.uid


def plan_at_zero(session: InferenceSession) -> str | None:
    """Name of the session's current plan if it is scaled to zero: it then holds no accelerators."""
    status = session.status
    return (
        status.current_plan.name if status.current_plan is not None and status.scale_to_zero_time is not None else None
    )


def account_of(session: InferenceSession, plans: Plans) -> Account:
    """The account of a session with these plans."""
    status, meta = session.status, session.metadata
    current = status.current_plan.name if status.current_plan else None
    pending = status.pending_plan
    # A plan that a person or a window holds back takes nothing from other sessions yet.
    pending_unheld = None if status.preview is not None and status.preview.plan == pending else pending
    at_zero = plan_at_zero(session)
    needs = {
        name: accelerators(plans[name]) for name in {current, pending} - {at_zero} if name is not None and name in plans
    }
    heading = plans.get(pending_unheld or current or "")
    return Account(
        key=session.key,
        namespace=meta.namespace or "default",
        rank=(-session.spec.priority, meta.creation_timestamp, session.key),
        held=_largest(needs, (current, pending)),
        claimed=_largest(needs, (current, pending_unheld)),
        goal=dict(heading.spec.gpus()) if heading is not None else {},
        greedy=session.spec.objective.type.seeks_throughput and meta.deletion_timestamp is None,
    )


def accelerators(plan: PipelinePlan) -> dict[str, int]:
    """What a plan holds by pool: its planned replicas, and those that the autoscaler added."""
    planned = {
        (module.name, pipeline.name, position): stage.replicas
        for module, pipeline, position, stage in plan.spec.stages()
    }
    desired = {(s.module, s.pipeline, s.stage): s.desired for s in plan.status.stages}
    return plan.spec.gpus({stage: max(count, desired.get(stage, 0)) for stage, count in planned.items()})


def _largest(needs: Mapping[str, Mapping[str, int]], names: Iterable[str | None]) -> dict[str, int]:
    held: dict[str, int] = {}
    for name in names:
        for pool, gpus in needs.get(name or "", {}).items():
            held[pool] = max(held.get(pool, 0), gpus)
    return held


def _greedy(accounts: Mapping[str, Account]) -> tuple[Account, ...]:
    return tuple(sorted((a for a in accounts.values() if a.greedy), key=lambda a: a.rank))


def _sorted_by_rank(
    before: Mapping[str, tuple[Account, ...]], changed: Iterable[tuple[Account | None, Account | None]]
) -> dict[str, tuple[Account, ...]]:
    """Accounts by pool, in order, after each old account of `changed` is replaced by the new one."""
    touched: dict[str, dict[str, Account]] = {}

    def on(pool: str) -> dict[str, Account]:
        return touched.setdefault(pool, {a.key: a for a in before.get(pool, ())})

    for old, new in changed:
        if old is not None:
            for pool in old.pools:
                del on(pool)[old.key]
        if new is not None:
            for pool in new.pools:
                on(pool)[new.key] = new
    sorted_again = {
        pool: tuple(sorted(accounts_of_pool.values(), key=lambda a: a.rank))
        for pool, accounts_of_pool in touched.items()
    }
    return {pool: accounts_of_pool for pool, accounts_of_pool in {**before, **sorted_again}.items() if accounts_of_pool}
