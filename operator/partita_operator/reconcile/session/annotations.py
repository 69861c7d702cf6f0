"""What people ask of a session by annotations: to pause, to approve a plan, to go back to one.

They are annotations rather than fields of the spec, so that a command does not fight with what Git says of the spec,
and so that a request says what it is about: an approval names its plan, a rollback the generation that it is for.
"""

import re
from dataclasses import dataclass

from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION, PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.capacity.accounting import available, short_of
from partita_operator.reconcile.world import SessionWorld


@dataclass(frozen=True)
class Rollback:
    """What becomes of the request to go back to a plan."""

    plan: PipelinePlan | None = None
    """The plan to hold, if the request can be met."""
    refusal: str = ""
    """Why it cannot be met, and what to do."""
    lapsed: bool = False
    """Whether the session's spec has changed since, which ends it."""


def pause_reason(session: InferenceSession) -> str | None:
    """Why the session is paused; None if it is not."""
    text = session.metadata.annotations.get(PAUSED_ANNOTATION, "").strip()
    return text if text and text.lower() != "false" else None


def approved_plan(session: InferenceSession) -> str | None:
    """Name of the plan that the session's annotation approves."""
    return session.metadata.annotations.get(APPROVED_ANNOTATION) or None


def rollback_annotation(plan: str, generation: int) -> str:
    """The annotation's value that asks for `plan` as long as the session's generation is this one."""
    return f"{plan}@{generation}"


def find_rollback(world: SessionWorld, active: str | None) -> Rollback:
    """The plan to go back to, if somebody asks for one; `active` is the plan in force."""
    session = world.session
    asked = session.metadata.annotations.get(ROLLBACK_ANNOTATION, "")
    if not asked:
        return Rollback()
    matched = re.fullmatch(r"([^@\s]+)@(\d+)", asked)
    if matched is None:
        return Rollback(
            refusal=f"The annotation {ROLLBACK_ANNOTATION} must be PLAN@GENERATION of the session, such as "
            f"{rollback_annotation(session.metadata.name + '-0123abcd', session.metadata.generation)}, but it is "
            f"{asked[:100]!r}. Correct or remove it."
        )
    name, generation = matched[1], int(matched[2])
    if generation != session.metadata.generation:
        return Rollback(lapsed=True)
    plan = world.plans.get(name)
    if plan is None:
        there = ", ".join(sorted(world.plans)) or "none"
        return Rollback(refusal=f"There is no plan {name[:100]} to go back to; the session's plans are: {there}.")
    missing = short_of(plan, available(session, world.cluster))
    if name != active and missing:
        short = ", ".join(f"{gpus} of pool {pool}" for pool, gpus in missing.items())
        return Rollback(refusal=f"Plan {name} cannot come back: it lacks {short}, as others have them now.")
    return Rollback(plan)
