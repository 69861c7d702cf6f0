"""Requests that people make by annotations of a session: pause, approve a plan, roll back to a plan.

They are not in the spec, so a command does not conflict with a GitOps tool. A request names its object: an
approval names the plan, and a rollback the plan and the generation of the session.
"""

import re
from dataclasses import dataclass

from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION, PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.capacity.accounting import short_of
from partita_operator.reconcile.world import SessionWorld


@dataclass(frozen=True)
class Rollback:
    """The result of a request to roll back to a plan."""

    plan: PipelinePlan | None = None
    """The plan to roll back to, if that is possible."""
    refusal: str = ""
    """Why it is not possible, and what to do."""
    lapsed: bool = False
    """Whether the spec changed later, which ends the rollback."""


def pause_reason(session: InferenceSession) -> str | None:
    """Why the session is paused; None if it is not."""
    text = session.metadata.annotations.get(PAUSED_ANNOTATION, "").strip()
    return text if text and text.lower() != "false" else None


def approved_plan(session: InferenceSession) -> str | None:
    """Name of the plan that the annotation approves."""
    return session.metadata.annotations.get(APPROVED_ANNOTATION) or None


def rollback_annotation(plan: str, generation: int) -> str:
    """The value of the annotation that requests `plan` while the session has this generation."""
    return f"{plan}@{generation}"


def find_rollback(world: SessionWorld, current: str | None) -> Rollback:
    """The plan to roll back to, if a person requests it; `current` is the name of the current plan."""
    session = world.session
    asked = session.metadata.annotations.get(ROLLBACK_ANNOTATION, "")
    if not asked:
        return Rollback()
    matched = re.fullmatch(r"([^@\s]+)@([0-9]{1,18})", asked)
    if matched is None:
        example = rollback_annotation(f"{session.metadata.name}-0123abcd", session.metadata.generation)
        return Rollback(
            refusal=f"The annotation {ROLLBACK_ANNOTATION} is {asked[:100]!r}, not PLAN@GENERATION. Write it as in "
            f"{example}, or remove it."
        )
    name, generation = matched[1], int(matched[2])
    if generation != session.metadata.generation:
        return Rollback(lapsed=True)
    plan = world.plans.get(name)
    if plan is None:
        known = ", ".join(sorted(world.plans)) or "none"
        return Rollback(refusal=f"Plan {name[:100]} does not exist. Choose one of the session's plans: {known}.")
    missing = short_of(plan, world.availability.free)
    if name != current and missing:
        short = ", ".join(f"{gpus} of pool {pool}" for pool, gpus in missing.items())
        return Rollback(
            refusal=f"Plan {name} does not fit: other sessions hold {short}, which it needs. Choose another plan."
        )
    return Rollback(plan)
