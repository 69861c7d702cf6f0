"""The batching policies by name."""

from collections.abc import Callable
from typing import Final, NamedTuple

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.policies.clockwork import Clockwork
from partita_runtime.scheduling.policies.deferred import Deferred
from partita_runtime.scheduling.policies.eager import Eager
from partita_runtime.scheduling.policies.elsa import Elsa
from partita_runtime.scheduling.policies.fifs import Fifs
from partita_runtime.scheduling.policies.nexus import Nexus
from partita_runtime.scheduling.policies.policy import Policy, PolicyContext
from partita_runtime.scheduling.policies.serve_batch import ServeBatch
from partita_runtime.scheduling.policies.shepherd import Shepherd
from partita_runtime.scheduling.policies.timeout import Timeout


class PolicyEntry(NamedTuple):
    """One available policy."""

    make: Callable[..., Policy]
    """Takes the context and, if the policy has one, the value of its parameter."""
    parameter: str = ""
    """What the parameter means; empty if the policy has none."""
    meets_deadlines: bool = True
    """Whether a dispatched batch meets its deadline if executions match the profile."""


POLICIES: Final[dict[str, PolicyEntry]] = {
    BatchingPolicy.DEFERRED.value: PolicyEntry(Deferred),
    BatchingPolicy.EAGER.value: PolicyEntry(Eager),
    BatchingPolicy.ELSA.value: PolicyEntry(Elsa, meets_deadlines=False),
    "Timeout": PolicyEntry(Timeout, "percent of the time until the deadline"),
    "Clockwork": PolicyEntry(Clockwork, "milliseconds that work is committed ahead"),
    "Nexus": PolicyEntry(Nexus),
    "Shepherd": PolicyEntry(Shepherd),
    "Fifs": PolicyEntry(Fifs, meets_deadlines=False),
    "ServeBatch": PolicyEntry(ServeBatch, "milliseconds to wait for a batch", False),
}
"""A session can use those of `BatchingPolicy`, a simulation all of them."""


def make_policy(name: str, context: PolicyContext) -> Policy:
    """The policy of a name, such as "Deferred", "Timeout" or, with a parameter, "Timeout:25".

    Raises ValueError for an unknown name or a bad parameter.
    """
    entry, parameter = _parse(name)
    return entry.make(context) if parameter is None else entry.make(context, parameter)


def checked_policy(name: str) -> str:
    """The name, if `make_policy` accepts it; else raises ValueError."""
    _parse(name)
    return name


def _parse(text: str) -> tuple[PolicyEntry, float | None]:
    name, colon, parameter = text.partition(":")
    entry = POLICIES.get(name)
    if entry is None:
        raise ValueError(f"no batching policy {name!r}; choose one of {', '.join(POLICIES)}")
    if not colon:
        return entry, None
    if not entry.parameter:
        raise ValueError(f"the batching policy {name} has no parameter; write {name!r}")
    try:
        value = float(parameter)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ValueError(f"{text!r}: the parameter of {name} is {entry.parameter}, such as {name}:5")
    return entry, value
