"""Planning without a cluster: pools and profiles from files or from Python, and the plan for a session."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from partita.errors import PartitaError
from partita.plan import Plan
from partita.problems import field_path
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.manifests import broken_fields
from partita_api.meta import ObjectMeta
from partita_api.profile import Profile
from partita_operator.cli.errors import BadInput
from partita_operator.cli.manifests import read_manifests, read_profiles
from partita_planner.planning import EXPLAIN_SECONDS
from partita_planner.planning import plan as solve
from partita_planner.several_sessions.offline import plan_offline

Pools = Sequence[GPUPool] | Path | str
"""GPUPools, or a file or folder with their manifests."""
Profiles = Sequence[Profile] | Path | str
"""Profiles, or the folder into which `partita profile` has written them."""
Milliseconds = Mapping[str, Mapping[str, Mapping[int, float]]]
"""The time of one batch by module, pool and batch size."""


def pool(name: str, *, count: int, price_per_hour: float | str, **spec: Any) -> GPUPool:
    """A pool of so many accelerators, for planning; `spec` are other fields of a GPUPool's spec, such as `memory`.

    Raises PartitaError for values that a GPUPool cannot have.
    """
    fields = {
        "count": count,
        "pricePerHour": price_per_hour,
        **{to_camel(field): value for field, value in spec.items()},
    }
    try:
        return GPUPool.model_validate({"metadata": ObjectMeta(name=name), "spec": fields})
    except ValidationError as error:
        wrong = "; ".join(f"{field_path(place)}: {message}" for place, message in broken_fields(error))
        raise PartitaError(f"pool {name} is wrong: {wrong}") from error


def plan_of(
    session: InferenceSession, pools: Pools, profiles: Profiles, explain_seconds: float = EXPLAIN_SECONDS
) -> Plan:
    """The plan for a session alone on these pools. Raises NoPlanError, and PartitaError for files that are wrong."""
    try:
        found = _pools(pools), _profiles(profiles)
    except BadInput as error:
        raise PartitaError(error.message) from error
    ((_, outcome),) = plan_offline(found[0], [session], found[1], partial(solve, explain_seconds=explain_seconds))
    return Plan.of(session, outcome)


def assumed_profiles(session: InferenceSession, milliseconds: Milliseconds) -> tuple[Profile, ...]:
    """Profiles of whole models from their latencies alone. Raises PartitaError if the session has no such model."""
    models = {m.name: (m.model, m.input) for m in session.spec.modules if m.model is not None and m.input is not None}
    if unknown := [name for name in milliseconds if name not in models]:
        raise PartitaError(f"{session.key} has no model {', '.join(unknown)}; its models are: {', '.join(models)}")
    backend = session.spec.execution.backend
    return tuple(
        Profile.of_whole_model(*models[name], pool, times, backend)
        for name, by_pool in milliseconds.items()
        for pool, times in by_pool.items()
    )


def _pools(given: Pools) -> Sequence[GPUPool]:
    return read_manifests([Path(given)]).pools if isinstance(given, str | Path) else given


def _profiles(given: Profiles) -> Sequence[Profile]:
    if isinstance(given, str | Path):
        return read_profiles(Path(given), [Path("MANIFESTS")])
    return given
