"""The outcome of the planner, with checks."""

from partita_api.pipelineplan import PipelinePlanSpec
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, Planned, PlanningProblem
from partita_planner.validation import validate


def planned(asked: PlanningProblem) -> PipelinePlanSpec:
    """The plan, which the validator passes."""
    outcome = plan(asked)
    assert isinstance(outcome, Planned), outcome
    assert validate(outcome.plan, asked) == ()
    return outcome.plan


def refused(asked: PlanningProblem) -> NoPlan:
    """The reason why there is no plan."""
    outcome = plan(asked)
    assert isinstance(outcome, NoPlan), outcome
    return outcome
