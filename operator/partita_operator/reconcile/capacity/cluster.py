"""All of Partita's objects in a cluster, with the ledger of who has what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.capacity.ledger import NO_PLANS, Ledger, Plans, owner_of


@dataclass(frozen=True)
class Cluster:
    """Partita's objects in the whole cluster."""

    pools: Mapping[str, GPUPool] = field(default_factory=dict)
    sessions: Mapping[str, InferenceSession] = field(default_factory=dict)
    """By namespace/name."""
    plans: Mapping[str, PipelinePlan] = field(default_factory=dict)
    """By namespace/name."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Sessions (namespace/name) and pools (name) whose spec is invalid, and why. `sessions` and `pools` have them with
    their metadata and status; the spec of such a session is that of its current plan."""

    before: Ledger = field(default_factory=Ledger, repr=False, compare=False)
    """The ledger of an earlier state, which this one's is made from."""

    def plans_of(self, session: InferenceSession) -> Plans:
        """The session's own plans by name; not those of an earlier session of the same name."""
        return self.ledger.owned.get(owner_of(session), NO_PLANS)

    @cached_property
    def ledger(self) -> Ledger:
        """Which session has which accelerators and plans."""
        return self.before.after(self.sessions, self.plans)
