"""`partita plan`: plan sessions offline."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from partita_api.inferencesession import InferenceSession, ObjectiveKind
from partita_api.manifests import Manifests
from partita_api.pipelineplan import PipelinePlanSpec
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.manifests import BadInput, read_manifests, read_profiles
from partita_operator.cli.output import OutputFormat, emit, output_option, report
from partita_planner.offline import plan_offline
from partita_planner.plan import plan as solve
from partita_planner.problem import NoPlan, NoPlanReason, Outcome
from partita_planner.strategies import STRATEGIES

profiles_option = click.option(
    "--profiles",
    "profile_directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with profiles, as `partita profile` writes them.",
)
rate_option = click.option(
    "--rate", type=click.IntRange(1), help="Requests per second to plan for. Default: as each session declares."
)


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@profiles_option
@rate_option
@click.option("--session", "names", multiple=True, help="Only this session; may be repeated.")
@click.option("--strategy", type=click.Choice(sorted(STRATEGIES)), help="Instead of the sessions' own strategy.")
@output_option
def plan(
    manifests: tuple[Path, ...],
    profile_directory: Path,
    rate: int | None,
    names: tuple[str, ...],
    strategy: str | None,
    output: OutputFormat,
) -> None:
    """Plan the InferenceSessions in MANIFESTS (files or directories, with the GPUPools they use).

    Sessions are planned in their order, each on the GPUs that those before it leave. Needs no cluster. Exit code 3 if
    a session has no plan; the reason says what would make one possible.
    """
    found, profiles = read_manifests(manifests), read_profiles(profile_directory)
    sessions = chosen_sessions(found, names, rate, strategy)
    answers = []
    for session, outcome in plan_offline(found.pools, sessions, profiles, solve):
        report(f"planned {session.key} for {session.spec.rate.requests_per_second} requests/s")
        answers.append((session, outcome))

    def table(console: Console) -> None:
        for session, outcome in answers:
            _print_outcome(session, outcome, console)

    emit([_document(session, outcome) for session, outcome in answers], output, table)
    refused = [outcome for _, outcome in answers if isinstance(outcome, NoPlan)]
    if any(outcome.reason is NoPlanReason.INVALID_SESSION for outcome in refused):
        raise SystemExit(ExitCode.BAD_INPUT)
    if refused:
        raise SystemExit(ExitCode.NO_PLAN)


def chosen_sessions(
    found: Manifests, names: tuple[str, ...], rate: int | None, strategy: str | None = None
) -> list[InferenceSession]:
    """The sessions of the manifests, narrowed to `names` if any, with another rate or strategy if given.

    Raises BadInput if there are none.
    """
    sessions = [s for s in found.sessions if not names or s.metadata.name in names]
    if not sessions:
        there = ", ".join(s.metadata.name for s in found.sessions) or "none"
        raise BadInput(f"there is no such InferenceSession in the manifests; they have: {there}")
    return [_changed(session, rate, strategy) for session in sessions]


def _changed(session: InferenceSession, rate: int | None, strategy: str | None) -> InferenceSession:
    spec = session.spec
    if rate is not None:
        spec = spec.model_copy(update={"rate": spec.rate.model_copy(update={"requests_per_second": rate})})
    if strategy is not None:
        spec = spec.model_copy(update={"planner": spec.planner.model_copy(update={"strategy": strategy})})
    return session.model_copy(update={"spec": spec})


def _document(session: InferenceSession, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, NoPlan):
        return {
            "session": session.key,
            "reason": str(outcome.reason),
            "message": outcome.message,
            "smallestSloMs": outcome.smallest_slo_ms,
            "largestRate": outcome.largest_rate,
            "gpusMissing": dict(outcome.gpus_missing),
        }
    return {
        "session": session.key,
        "plan": outcome.plan.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def _print_outcome(session: InferenceSession, outcome: Outcome, console: Console) -> None:
    if isinstance(outcome, NoPlan):
        console.print(f"[bold]{session.key}[/bold]: no plan ({outcome.reason})")
        console.print(outcome.message, markup=False)
        return
    spec = outcome.plan
    console.print(_stages(session, spec))
    console.print(_in_words(spec), markup=False)


def _stages(session: InferenceSession, spec: PipelinePlanSpec) -> Table:
    table = Table(title=f"{session.key}, {spec.solution.strategy}", title_justify="left")
    for name in ("module", "budget ms", "pipeline", "batch", "blocks", "pool", "vGPUs", "stage ms"):
        table.add_column(name, justify="left" if name in ("module", "pipeline", "pool") else "right")
    for module in spec.modules:
        for pipeline in module.pipelines:
            for stage in pipeline.stages:
                table.add_row(
                    module.name,
                    f"{module.budget_micros / 1e3:.1f}",
                    pipeline.name,
                    str(pipeline.batch_size),
                    f"{stage.blocks.first}-{stage.blocks.end - 1}",
                    stage.pool,
                    f"{stage.replicas} x 1/{stage.vgpu_divisor}" if stage.vgpu_divisor > 1 else str(stage.replicas),
                    f"{stage.latency_micros / 1e3:.1f}",
                )
    return table


def _in_words(spec: PipelinePlanSpec) -> str:
    solution = spec.solution
    unit = "an hour" if solution.kind is ObjectiveKind.COST else "requests/s"
    lines = [
        f"cost {spec.cost.allocated_per_hour} an hour ({spec.cost.occupancy_per_hour} by occupancy), "
        f"throughput {spec.throughput} requests/s",
        f"objective {solution.value} {unit}, bound {solution.bound}, gap {float(solution.gap):.2%}, "
        f"{solution.seconds} s",
        solution.explanation,
    ]
    lines += [other.summary for other in spec.alternatives]
    return "\n".join(line for line in lines if line)
