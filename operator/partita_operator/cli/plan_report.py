"""The output of `partita plan`: plans, comparisons of strategies, and differences, as tables and as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlanSpec, Stage
from partita_api.session.plan_changes import PlannedChange
from partita_planner.explain.difference import PlanDifference
from partita_planner.problem import NoPlan, Outcome

if TYPE_CHECKING:  # the planner takes a second to load, which `partita explain` does not need
    from partita_planner.several_sessions.joint_planning import JointOutcome

NOTHING = "nothing would change"


def outcome_data(session: InferenceSession, outcome: Outcome) -> dict[str, Any]:
    """A plan, or the reason why there is none."""
    if isinstance(outcome, NoPlan):
        return {"session": session.key, **_no_plan_data(outcome)}
    return {
        "session": session.key,
        "plan": outcome.plan.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def comparison_data(session: InferenceSession, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The outcome of each strategy for one session."""
    return {
        "session": session.key,
        "strategies": [{"strategy": name, **_in_short(outcome)} for name, outcome in outcomes.items()],
    }


def difference_data(session: InferenceSession, outcome: Outcome, changes: Sequence[PlanDifference]) -> dict[str, Any]:
    """The new plan and its changes."""
    return {**outcome_data(session, outcome), "changes": [asdict(change) for change in changes]}


def together_data(answers: Sequence[tuple[InferenceSession, Outcome]], planned: "JointOutcome") -> dict[str, Any]:
    """The plans of sessions that were planned together, and their common objective."""
    return {
        "value": planned.value,
        "bound": planned.bound,
        "sessions": [outcome_data(*answer) for answer in answers],
    }


def print_together(
    answers: Sequence[tuple[InferenceSession, Outcome]], planned: "JointOutcome", console: Console
) -> None:
    """Print every session's plan, and their common objective."""
    for answer in answers:
        print_outcome(*answer, console)
    if planned.value is not None:
        kind = answers[0][0].spec.objective.type
        of_what = f"{kind.unit} for each unit of weight" if kind.seeks_throughput else f"{kind.unit} in all"
        console.print(f"together: {planned.value:.6g} {of_what}; proven bound {planned.bound:.6g}", markup=False)


def print_outcome(session: InferenceSession, outcome: Outcome, console: Console) -> None:
    """Print a plan's stages and its explanation, or the reason why there is no plan."""
    if isinstance(outcome, NoPlan):
        console.print(f"[bold]{session.key}[/bold]: no plan ({outcome.reason})")
        console.print(outcome.message, markup=False)
        return
    print_plan(session, outcome.plan, console)


def print_plan(session: InferenceSession, spec: PipelinePlanSpec, console: Console) -> None:
    """Print a plan's stages and its explanation."""
    console.print(stage_table(session, spec))
    console.print(in_words(spec), markup=False)


def print_comparison(session: InferenceSession, outcomes: Mapping[str, Outcome], console: Console) -> None:
    """Print one row for each strategy, then the reasons of those without a plan."""
    unit = session.spec.objective.type.unit
    table = Table(title=f"{session.key}, strategies", title_justify="left")
    columns = (f"objective, {unit}", "cost/h", "by occupancy", "W", "requests/s", "GPUs", "seconds", "gap")
    table.add_column("strategy", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="left" if name == "GPUs" else "right")
    for name, outcome in outcomes.items():
        if isinstance(outcome, NoPlan):
            table.add_row(name, "no plan", *["-"] * (len(columns) - 1))
            continue
        spec, solution = outcome.plan, outcome.plan.solution
        table.add_row(
            name,
            str(solution.value),
            str(spec.cost.allocated_per_hour),
            str(spec.cost.occupancy_per_hour),
            str(spec.cost.power_watts or "-"),
            str(spec.throughput),
            ", ".join(f"{count} {pool}" for pool, count in spec.gpus().items()),
            f"{float(solution.seconds):.3f}",
            f"{float(solution.gap):.2%}",
        )
    console.print(table)
    for name, outcome in outcomes.items():
        if isinstance(outcome, NoPlan):
            console.print(f"{name}: no plan ({outcome.reason}). {outcome.message}", markup=False)


def print_differences(
    session: InferenceSession, outcome: Outcome, changes: Sequence[PlanDifference], console: Console
) -> None:
    """Print what would change, or the reason why there is no plan."""
    if isinstance(outcome, NoPlan):
        print_outcome(session, outcome, console)
        return
    print_changes(session.key, changes, console)


def print_changes(session_key: str, changes: Sequence[PlanDifference | PlannedChange], console: Console) -> None:
    """Print what would change of a session."""
    if not changes:
        console.print(f"{session_key}: {NOTHING}", markup=False)
        return
    table = Table(title=f"{session_key}, what would change", title_justify="left")
    for name in ("where", "what", "before", "after"):
        table.add_column(name)
    for change in changes:
        table.add_row(change.where, change.what, change.before or "-", change.after or "-")
    console.print(table)


def _no_plan_data(outcome: NoPlan) -> dict[str, Any]:
    return {
        "reason": str(outcome.reason),
        "message": outcome.message,
        "smallestSloMs": outcome.smallest_slo_ms,
        "largestRate": outcome.largest_rate,
        "gpusMissing": dict(outcome.gpus_missing),
    }


def _in_short(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, NoPlan):
        return {"feasible": False, **_no_plan_data(outcome)}
    spec, solution = outcome.plan, outcome.plan.solution
    return {
        "feasible": True,
        "objective": str(solution.objective),
        "value": float(solution.value),
        "bound": float(solution.bound),
        "gap": float(solution.gap),
        "allocatedPerHour": float(spec.cost.allocated_per_hour),
        "occupancyPerHour": float(spec.cost.occupancy_per_hour),
        "powerWatts": None if spec.cost.power_watts is None else float(spec.cost.power_watts),
        "throughput": float(spec.throughput),
        "gpus": spec.gpus(),
        "seconds": float(solution.seconds),
    }


def stage_table(session: InferenceSession, spec: PipelinePlanSpec) -> Table:
    """A plan's stages, one in a row. Cells are text."""
    table = Table(title=f"{session.key}, {spec.solution.strategy}", title_justify="left")
    for name in ("module", "budget ms", "pipeline", "batch", "blocks", "pool", "vGPUs", "stage ms"):
        table.add_column(name, justify="left" if name in ("module", "pipeline", "pool") else "right")
    for module, pipeline, _, stage in spec.stages():
        table.add_row(
            module.name,
            f"{module.budget_micros / 1e3:.1f}",
            pipeline.name,
            str(pipeline.batch_size),
            f"{stage.blocks.first}-{stage.blocks.end - 1}",
            stage.pool,
            _vgpus(stage),
            f"{stage.latency_micros / 1e3:.1f}",
        )
    for module in spec.modules:
        if module.padded_to is not None:
            table.add_row(module.name, f"{module.budget_micros / 1e3:.1f}", f"padded to {module.padded_to}")
    return table


def _vgpus(stage: Stage) -> str:
    """The number of vGPUs, their share of an accelerator, and their sub-cluster."""
    share = f" x 1/{stage.vgpu_divisor}" if stage.vgpu_divisor > 1 else ""
    return f"{stage.replicas}{share}" + (f" ({stage.subcluster})" if stage.subcluster is not None else "")


def in_words(spec: PipelinePlanSpec) -> str:
    """A plan's cost, how good it is, and why, in lines."""
    solution, cost = spec.solution, spec.cost
    watts = f", {cost.power_watts} W" if cost.power_watts is not None else ""
    lines = [
        f"cost {cost.allocated_per_hour} an hour ({cost.occupancy_per_hour} by occupancy){watts}, "
        f"throughput {spec.throughput} requests/s",
        f"objective {solution.value} {solution.objective.unit}, bound {solution.bound}, gap {float(solution.gap):.2%}, "
        f"{solution.seconds} s",
        solution.explanation,
    ]
    lines += [other.summary for other in spec.alternatives]
    return "\n".join(line for line in lines if line)
