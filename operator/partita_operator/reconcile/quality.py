"""Which plans have passed the session's quality check, what is to be checked now, and the condition QualityMet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.digests import digest
from partita_api.quality import Quality, QualityResult
from partita_operator.reconcile.actions import Action, CheckQuality
from partita_operator.reconcile.findings import Finding, condition
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import PlanCheck, SessionWorld
from partita_runtime.serving.deploy.epochs import CheckState

AGAIN_SECONDS: Final = 10.0
"""Pause before a plan that could not be asked is asked again."""


@dataclass(frozen=True)
class QualityGate:
    """The results of the session's present check."""

    quality: Quality | None = None
    question: str = ""
    """Digest of the check and its samples; empty without samples."""
    unusable: str = ""
    """Why there are no samples."""
    results: Mapping[str, QualityResult] = field(default_factory=dict)
    """By plan."""
    check: PlanCheck | None = None
    """The last check with the present samples."""

    def passed(self, plan: str) -> bool:
        """Whether the plan may serve."""
        return self.quality is None or (plan in self.results and self.results[plan].met)

    def obstacle(self, plan: str) -> tuple[Reason, str] | None:
        """Why the plan cannot pass, if it cannot."""
        if self.quality is None:
            return None
        if self.unusable:
            message = f"Plan {plan} takes no requests before its answers are checked. {self.unusable}"
            return Reason.SAMPLES_MISSING, message
        result = self.results.get(plan)
        if result is None or result.met:
            return None
        return Reason.QUALITY_MISSED, (
            f"Plan {plan} takes no requests: {_outcome(result)} Correct its models, or change spec.quality or its "
            "samples: then the answers are checked again."
        )


def quality_gate(world: SessionWorld) -> QualityGate:
    """What is known of the session's plans."""
    quality, samples = world.session.spec.quality, world.quality.samples
    if quality is None:
        return QualityGate()
    if samples is None:
        source = quality.samples
        missing = f"ConfigMap {source.config_map} has no key {source.key}, or does not exist. Create it."
        return QualityGate(quality, unusable=world.quality.problem or missing)
    question = digest({"quality": quality.model_dump(mode="json"), "samples": sha256(samples.encode()).hexdigest()})
    found = [(name, plan.status.quality) for name, plan in world.plans.items()]
    results = {name: result for name, result in found if result is not None and result.question == question}
    check = world.quality.check
    if check is None or check.question != question:
        return QualityGate(quality, question, results=results)
    if check.result is not None:
        results[check.plan] = check.result
    return QualityGate(quality, question, results=results, check=check)


def check_state(gate: QualityGate, plan: str, serves: bool) -> CheckState | None:
    """What frontends are told of the plan; `serves` says whether it serves already, or has to."""
    if gate.quality is None:
        return None
    return CheckState.OPEN if serves or gate.passed(plan) else CheckState.AWAITED


def quality_actions(world: SessionWorld, gate: QualityGate, plan: str, now: datetime) -> tuple[Action, ...]:
    """The check of a plan that executes requests, unless its result is known."""
    samples, last = world.quality.samples, gate.check
    if gate.quality is None or samples is None or plan in gate.results:
        return ()
    if last is not None and last.plan == plan and (last.finished is None or _waits(last.finished, now)):
        return ()
    return (CheckQuality(plan, gate.question, gate.quality, samples),)


def quality_met(world: SessionWorld, gate: QualityGate, plan: str | None) -> Finding | None:
    """The condition QualityMet of the plan that is desired; None for a session that never had a check."""
    if gate.quality is None:
        if condition(world.session.status.conditions, ConditionType.QUALITY_MET) is None:
            return None
        return _finding(True, Reason.NO_QUALITY, "The session has no spec.quality: answers are not checked.")
    if gate.unusable:
        return _finding(False, Reason.SAMPLES_MISSING, gate.unusable)
    unknown = ConditionStatus.UNKNOWN
    if plan is None:
        return _finding(unknown, Reason.CHECKING_QUALITY, "There is no plan yet whose answers can be checked.")
    result = gate.results.get(plan)
    if result is None:
        problem = gate.check.problem if gate.check is not None and gate.check.plan == plan else ""
        message = f"The answers of plan {plan} are checked once its replicas are up. {problem}"
        return _finding(unknown, Reason.CHECKING_QUALITY, message.strip())
    if result.met:
        return _finding(True, Reason.QUALITY_MET, f"Plan {plan}: {_outcome(result)}")
    message = f"Plan {plan}: {_outcome(result)} Correct its models, or change spec.quality or its samples."
    return _finding(False, Reason.QUALITY_MISSED, message)


def _outcome(result: QualityResult) -> str:
    """The result in one sentence."""
    bound = "at least" if result.metric.is_share else "at most"
    value = "has no value" if result.score is None else f"is {result.score}"
    problems = f" ({result.message})" if result.message else ""
    return f"{result.metric} {value} on {result.samples} samples{problems}, and should be {bound} {result.limit}."


def _waits(finished: datetime, now: datetime) -> bool:
    return (now - finished).total_seconds() < AGAIN_SECONDS


def _finding(status: ConditionStatus | bool, reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.QUALITY_MET, status, reason, message)
