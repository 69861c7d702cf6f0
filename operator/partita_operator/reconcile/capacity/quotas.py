"""Messages about a quota that keeps a session from free accelerators."""

from collections.abc import Iterator

from partita_api.gpupool import GPUPool, NamespaceUse
from partita_operator.reconcile.capacity.accounting import Availability, users
from partita_operator.reconcile.findings import listed
from partita_planner.problem import NoPlan, NoPlanReason


def quota_shortage(no_plan: NoPlan, availability: Availability) -> str:
    """Which quota leaves too few accelerators for a plan, and what to do; empty if no quota does."""
    if no_plan.reason is not NoPlanReason.INSUFFICIENT_CAPACITY:
        return ""
    return " ".join(_limits(no_plan, availability))


def quota_use(pool: GPUPool, held: dict[str, int]) -> tuple[NamespaceUse, ...]:
    """What every namespace with a quota holds, of what each session (namespace/name) `held`."""
    return tuple(
        NamespaceUse(namespace=q.namespace, gpus=q.gpus, allocated=sum(_of_namespace(held, q.namespace).values()))
        for q in pool.spec.quotas
    )


def _limits(no_plan: NoPlan, availability: Availability) -> Iterator[str]:
    session, cluster = availability.session, availability.cluster
    namespace = session.namespace
    without = availability.free_without_quotas
    for pool, left in availability.free.items():
        quota = cluster.pools[pool].spec.quota(namespace)
        if quota is None or without[pool] <= left:
            continue
        others = {k: n for k, n in _of_namespace(users(pool, cluster), namespace).items() if k != session.key}
        held = listed([f"{key} holds {gpus}" for key, gpus in sorted(others.items())])
        missing = no_plan.gpus_missing.get(pool)
        needed = f"It needs {missing} more. " if missing else ""
        yield (
            f"The quota of namespace {namespace} is {quota} accelerators of pool {pool}, which leaves {left} for this "
            f"session. {needed}{f'{held}, and ' if held else ''}{without[pool]} are free. Raise the quota in "
            f"spec.quotas of GPUPool {pool}, or reduce other sessions of the namespace."
        )


def _of_namespace(held: dict[str, int], namespace: str) -> dict[str, int]:
    return {key: gpus for key, gpus in held.items() if key.split("/", 1)[0] == namespace}
