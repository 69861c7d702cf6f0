"""An epoch of a session as data: JSON for the `user_config` of its frontend."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import model_validator

from partita_api.inferencesession import InferenceSession, InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_api.session.module import TensorSpec
from partita_api.session.request_log import RequestLog
from partita_api.session.size_classes import served_classes
from partita_runtime.scheduling.plan import SchedulingPlan, scheduling_plan
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.deploy.version_routes import VersionRoute

GIVEN_UP_AFTER_SLOS: Final = 4
"""A frontend gives up a request after this many times its SLO, and some seconds."""
_NOT_OF_FRONTENDS: Final = {"clients", "engine", "expose", "pod_template", "quality", "versions"}
"""Parts of a session's spec that only the operator reads. A frontend of an earlier version refuses what it does not
know."""


class CheckState(StrEnum):
    """What the quality check of the session says of the epoch's plan."""

    AWAITED = "Awaited"
    """The plan must not serve yet."""
    OPEN = "Open"
    """It may serve. Samples are answered, too."""


class Epoch(SpecModel):
    """One plan of one session as a frontend serves it."""

    session_key: str
    """namespace/name of the InferenceSession."""
    session: InferenceSessionSpec
    plan: SchedulingPlan
    outputs: dict[str, tuple[TensorSpec, ...]] = {}
    """The output tensors of each model, or size class, for one sample, if its profile has them."""
    output_names: dict[str, tuple[str, ...]] = {}
    """The models' own names of these outputs, where an edge may ask for them."""
    vocabularies: dict[str, tuple[int, ...]] = {}
    """For each input of a model, or size class, how many rows the table has from which its numbers select; 0 for other
    numbers. Without the models that select none."""
    clients: AllowedClients | None = None
    """The clients whose requests are answered; None for everybody's. They change without waiting for the plan."""
    versions: tuple[VersionRoute, ...] = ()
    """Other versions of the session, which change in the same way."""
    request_log: RequestLog | None = None
    """Where requests are logged, as the platform allows, and not what `session` has; None for nowhere. It changes
    without waiting for the plan, too."""
    check: CheckState | None = None
    """None for a session without a quality check: no samples are answered."""

    @model_validator(mode="after")
    def _every_model_is_planned(self) -> Self:
        planned = {module.name for module in self.plan.modules}
        models = [module for module in self.session.modules if module.model is not None]
        served = [each.name for module in models for each in served_classes(module, planned)]
        missing = [name for name in served if name not in planned]
        if missing:
            raise ValueError(f"plan {self.plan.name!r} does not serve the session's modules {', '.join(missing)}")
        return self

    def user_config(self) -> dict[str, Any]:
        """What a frontend reads of it."""
        return self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"session": _NOT_OF_FRONTENDS}
        )


def epoch(
    session: InferenceSession,
    plan: PipelinePlan,
    profiles: Mapping[tuple[str, str], Profile],
    bandwidth: Mapping[str, float],
    clients: AllowedClients | None = None,
    versions: tuple[VersionRoute, ...] = (),
    request_log: RequestLog | None = None,
    check: CheckState | None = None,
) -> Epoch:
    """The epoch in which `plan` serves the session's `clients`, beside other `versions` of the session.

    It logs requests by `request_log`, None for nowhere. `check` says whether the plan may serve. Profiles are by
    (module, pool), bandwidth by pool in bit/s.
    Raises KeyError with the key of a missing profile.
    """
    used = {(m.name, s.pool) for m in plan.spec.modules for p in m.pipelines for s in p.stages}
    shown = {module: profiles[module, pool] for module, pool in sorted(used, reverse=True)}
    asked = {edge.source for edge in session.spec.edges if edge.names_outputs}
    served = {module.name: served_classes(module, shown)[0].name for module in session.spec.modules}
    names = {module: shown[first].output_names for module, first in served.items() if first in shown}
    names |= {module.name: module.endpoint.outputs for module in session.spec.modules if module.endpoint is not None}
    frontend = session.spec.frontend.model_copy(update={"request_log": None})
    return Epoch(
        session_key=session.key,
        session=session.spec.model_copy(update={"frontend": frontend}),
        plan=scheduling_plan(plan.metadata.name, session.spec, plan.spec, profiles, bandwidth),
        outputs={module: profile.outputs for module, profile in shown.items()},
        vocabularies={module: profile.vocabularies for module, profile in shown.items() if profile.vocabularies},
        output_names={module: known for module, known in names.items() if module in asked},
        clients=clients,
        versions=versions,
        request_log=request_log,
        check=check,
    )
