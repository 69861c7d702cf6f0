"""A plan for the page: its diagram, its stages with predicted latencies, why it is the plan, and what differs."""

from collections.abc import Mapping
from dataclasses import dataclass

from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, ObjectiveType
from partita_api.module_graph import topological_order
from partita_api.pipelineplan import Constraint, ConstraintType, Evidence, PipelinePlan
from partita_operator.console.drawing.plan_figure import SERIES, PlanDiagram, plan_diagram
from partita_operator.console.views.findings import ConditionRow, condition_rows
from partita_operator.kube.resources import recorded_spec, recorded_spec_json
from partita_planner.explain.difference import PlanDifference, differences


@dataclass(frozen=True)
class PlannedStageRow:
    """One stage of a pooled pipeline."""

    module: str
    budget_ms: float
    pipeline: str
    batch_size: int
    stage: int
    """Its place in the pipeline, from 1."""
    blocks: str
    pool: str
    colour: int
    vgpus: str
    """Planned vGPUs, and their share of an accelerator."""
    latency_ms: float
    """Predicted for a full batch, by the profile."""
    transfer_ms: float
    ready: int | None
    """Replicas that are up; None if the plan does not run."""
    desired: int | None
    message: str


@dataclass(frozen=True)
class ConstraintRow:
    """A limit that the plan keeps."""

    what: str
    binding: bool
    worth: str
    """The gain from more of it; empty if it is not known."""
    evidence: str


@dataclass(frozen=True)
class AlternativeRow:
    """Another plan that was considered."""

    strategy: str
    value: str
    summary: str
    is_runner_up: bool


@dataclass(frozen=True)
class PlanView:
    """All about one plan."""

    name: str
    created: str
    objective: str
    unit: str
    strategy: str
    value: float
    bound: float
    gap: float
    seconds: float
    cost_per_hour: float
    occupancy_per_hour: float
    power_watts: float | None
    throughput: float
    accelerators: tuple[tuple[str, int], ...]
    """Whole accelerators by pool."""
    diagram: PlanDiagram | None
    stages: tuple[PlannedStageRow, ...]
    explanation: tuple[str, ...]
    """What binds the plan, in lines."""
    constraints: tuple[ConstraintRow, ...]
    alternatives: tuple[AlternativeRow, ...]
    conditions: tuple[ConditionRow, ...]


def plan_view(session: InferenceSession, plan: PipelinePlan, pools: tuple[str, ...]) -> PlanView:
    """The plan of a session; a pool's place in `pools` is its colour."""
    spec, solution = plan.spec, plan.spec.solution
    unit = solution.objective.unit
    return PlanView(
        name=plan.metadata.name,
        created=plan.metadata.creation_timestamp,
        objective=str(solution.objective),
        unit=unit,
        strategy=solution.strategy,
        value=float(solution.value),
        bound=float(solution.bound),
        gap=float(solution.gap),
        seconds=float(solution.seconds),
        cost_per_hour=float(spec.cost.allocated_per_hour),
        occupancy_per_hour=float(spec.cost.occupancy_per_hour),
        power_watts=None if spec.cost.power_watts is None else float(spec.cost.power_watts),
        throughput=float(spec.throughput),
        accelerators=tuple(sorted(spec.gpus().items())),
        diagram=diagram_of(planned_spec(session, plan), plan, pools),
        stages=_stages(plan, {pool: number % SERIES for number, pool in enumerate(pools)}),
        explanation=tuple(line for line in solution.explanation.splitlines() if line.strip()),
        constraints=tuple(_constraint(found, solution.objective) for found in solution.constraints),
        alternatives=_alternatives(plan),
        conditions=condition_rows(plan.status.conditions, plan.metadata.generation),
    )


def planned_spec(session: InferenceSession, plan: PipelinePlan) -> InferenceSessionSpec:
    """The spec that the plan was made from, as the plan recorded it; else the present one."""
    return recorded_spec(recorded_spec_json(plan)) or session.spec


def diagram_of(spec: InferenceSessionSpec, plan: PipelinePlan | None, pools: tuple[str, ...]) -> PlanDiagram | None:
    """The session's DAG with its plan; None if its edges form a cycle."""
    try:
        topological_order(spec)
    except ValueError:
        return None
    return plan_diagram(spec, plan.spec if plan is not None else None, pools)


def changes(before: PipelinePlan, after: PipelinePlan) -> tuple[PlanDifference, ...]:
    """What differs between two plans."""
    return differences(before.spec, after.spec)


def _stages(plan: PipelinePlan, colour: Mapping[str, int]) -> tuple[PlannedStageRow, ...]:
    running = {(found.module, found.pipeline, found.stage): found for found in plan.status.stages}
    rows = []
    for module, pipeline, position, stage in plan.spec.stages():
        now = running.get((module.name, pipeline.name, position))
        share = f" × 1/{stage.vgpu_divisor}" if stage.vgpu_divisor > 1 else ""
        shared = f" ({stage.subcluster})" if stage.subcluster is not None else ""
        rows.append(
            PlannedStageRow(
                module=module.name,
                budget_ms=module.budget_micros / 1000,
                pipeline=pipeline.name,
                batch_size=pipeline.batch_size,
                stage=position + 1,
                blocks=f"{stage.blocks.first}–{stage.blocks.end - 1}",
                pool=stage.pool,
                colour=colour.get(stage.pool, 0),
                vgpus=f"{stage.replicas}{share}{shared}",
                latency_ms=stage.latency_micros / 1000,
                transfer_ms=stage.transfer_micros / 1000,
                ready=now.ready if now is not None else None,
                desired=now.desired if now is not None else None,
                message=now.message if now is not None else "",
            )
        )
    return tuple(rows)


def _constraint(found: Constraint, objective: ObjectiveType) -> ConstraintRow:
    if found.type is ConstraintType.GPUS:
        what, more = f"accelerators of {found.pool}", "one more"
    else:
        modules = f" of {', '.join(found.modules)}" if found.modules else ""
        what, more = f"latency{modules}", "a tenth more of the SLO"
    worth = ""
    if found.worth is not None:
        gain = "more" if objective.seeks_throughput else "less"
        value = f"{float(found.worth):g} {objective.unit} {gain}" if float(found.worth) else "nothing"
        worth = f"{value} for {more}"
    return ConstraintRow(what, found.binding, worth, _EVIDENCE[found.evidence] if found.evidence is not None else "")


_EVIDENCE: Mapping[Evidence, str] = {
    Evidence.RESOLVED: "planned again with that much more",
    Evidence.RELAXED: "estimated with fractions of accelerators; a whole one may be worth more, less or nothing",
}


def _alternatives(plan: PipelinePlan) -> tuple[AlternativeRow, ...]:
    best = plan.spec.solution.runner_up
    others = [other for other in plan.spec.alternatives if other != best]
    return tuple(
        AlternativeRow(
            strategy=other.strategy + (f" without {other.without_pool}" if other.without_pool else ""),
            value=f"{float(other.value):g}" if other.value is not None else "no plan",
            summary=other.summary,
            is_runner_up=other is best,
        )
        for other in (*((best,) if best is not None else ()), *others)
    )
