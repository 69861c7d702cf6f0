"""The batching policies by name."""

from collections.abc import Callable
from typing import Final, NamedTuple

from partita_api.inferencesession import BatchingPolicy
from partita_runtime.scheduling.policies.clockwork import Clockwork
from partita_runtime.scheduling.policies.deferred import Deferred
from partita_runtime.scheduling.policies.eager import Eager
from partita_runtime.scheduling.policies.elsa import Elsa
from partita_runtime.scheduling.policies.fifs import Fifs
from partita_runtime.scheduling.policies.nexus import Nexus
from partita_runtime.scheduling.policies.policy import Policy
from partita_runtime.scheduling.policies.serve_batch import ServeBatch
from partita_runtime.scheduling.policies.shepherd import Shepherd
from partita_runtime.scheduling.policies.timeout import Timeout
from partita_runtime.scheduling.reservations.dispatched import InFlight
from partita_runtime.scheduling.workers.load import Load


class Entry(NamedTuple):
    """One policy that can be chosen."""

    make: Callable[[Load, InFlight], Policy]
    parametrised: Callable[[float], Policy] | None = None
    """Makes it with a parameter, where it has one."""
    parameter: str = ""
    """What the parameter means."""
    meets_deadlines: bool = True
    """Whether a dispatched batch meets its deadline when executions take what the profile says."""


POLICIES: Final[dict[str, Entry]] = {
    BatchingPolicy.DEFERRED.value: Entry(lambda load, _: Deferred(load)),
    BatchingPolicy.EAGER.value: Entry(lambda *_: Eager()),
    BatchingPolicy.ELSA.value: Entry(lambda *_: Elsa(), meets_deadlines=False),
    "Timeout": Entry(lambda *_: Timeout(), Timeout, "percent of the time until the deadline"),
    "Clockwork": Entry(lambda *_: Clockwork(), Clockwork, "milliseconds that work is committed ahead"),
    "Nexus": Entry(lambda *_: Nexus()),
    "Shepherd": Entry(lambda _, flight: Shepherd(flight)),
    "Fifs": Entry(lambda *_: Fifs(), meets_deadlines=False),
    "ServeBatch": Entry(lambda *_: ServeBatch(), ServeBatch, "milliseconds to wait for a batch", False),
}
"""Those of `BatchingPolicy` can be chosen for a session; all of them for a simulation."""


def make_policy(name: str, load: Load, flight: InFlight) -> Policy:
    """The policy of a plan, such as "Deferred", "Timeout" or, with a parameter, "Timeout:25".

    Raises ValueError for what is no policy.
    """
    return _maker(name)(load, flight)


def checked_policy(name: str) -> str:
    """The name, if `make_policy` takes it; else raises ValueError."""
    _maker(name)
    return name


def _maker(text: str) -> Callable[[Load, InFlight], Policy]:
    name, colon, parameter = text.partition(":")
    entry = POLICIES.get(name)
    if entry is None:
        raise ValueError(f"no batching policy {name!r}; there are {', '.join(POLICIES)}")
    if not colon:
        return entry.make
    if entry.parametrised is None:
        raise ValueError(f"the batching policy {name} has no parameter; write {name!r}")
    try:
        value = float(parameter)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ValueError(f"{text!r}: the parameter of {name} is {entry.parameter}, such as {name}:5")
    made = entry.parametrised
    return lambda *_: made(value)
