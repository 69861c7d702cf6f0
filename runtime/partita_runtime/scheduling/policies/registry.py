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
    """Takes the context and, if the policy has parameters, values of the first ones."""
    example: str = ""
    """The name with all parameters; empty if the policy has none."""
    parameters: str = ""
    """What they mean."""
    meets_deadlines: bool = True
    """Whether a dispatched batch meets its deadline if executions match the profile."""


POLICIES: Final[dict[str, PolicyEntry]] = {
    BatchingPolicy.DEFERRED.value: PolicyEntry(Deferred),
    BatchingPolicy.EAGER.value: PolicyEntry(Eager),
    BatchingPolicy.ELSA.value: PolicyEntry(Elsa, "Elsa:1.2:1", "alpha and beta of its rule", meets_deadlines=False),
    "Timeout": PolicyEntry(Timeout, "Timeout:40", "percent of the time until the deadline"),
    "Clockwork": PolicyEntry(Clockwork, "Clockwork:10", "milliseconds that work is committed ahead"),
    "Nexus": PolicyEntry(Nexus),
    "Shepherd": PolicyEntry(Shepherd),
    "Fifs": PolicyEntry(Fifs, meets_deadlines=False),
    "ServeBatch": PolicyEntry(ServeBatch, "ServeBatch:10", "milliseconds to wait for a batch", meets_deadlines=False),
}
"""A session can use those of `BatchingPolicy`, a simulation all of them."""


def make_policy(name: str, context: PolicyContext) -> Policy:
    """The policy of a name, such as "Deferred", "Timeout" or, with parameters, "Timeout:25" or "Elsa:1.2:1".

    Raises ValueError for an unknown name or a bad parameter.
    """
    entry, parameters = _parse(name)
    return entry.make(context, *parameters)


def checked_policy(name: str) -> str:
    """The name, if `make_policy` accepts it; else raises ValueError."""
    _parse(name)
    return name


def _parse(text: str) -> tuple[PolicyEntry, list[float]]:
    name, *given = text.split(":")
    entry = POLICIES.get(name)
    if entry is None:
        raise ValueError(f"no batching policy {name!r}; choose one of {', '.join(POLICIES)}")
    if given and not entry.example:
        raise ValueError(f"the batching policy {name} has no parameter; write {name!r}")
    values = [_number(parameter) for parameter in given]
    if len(values) > entry.example.count(":") or not all(0 <= value <= 1e6 for value in values):
        raise ValueError(f"{text!r}: {name} takes {entry.parameters}, such as {entry.example}")
    return entry, values


def _number(text: str) -> float:
    """The number that a text is; -1 if it is none."""
    try:
        return float(text)
    except ValueError:
        return -1.0
