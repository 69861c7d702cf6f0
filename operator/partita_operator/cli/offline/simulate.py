"""`partita simulate`: runs a plan under load, with the scheduling core on a virtual clock."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from partita_api.inferencesession import ArrivalProcess, InferenceSession
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.autoscaling import AutoscalingMode
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.manifests import read_manifests, read_profiles
from partita_operator.cli.offline.drawing import load_plots
from partita_operator.cli.offline.plan import chosen_sessions, profiles_option, rate_option
from partita_operator.cli.option_types import MAX_SECONDS, SECONDS, SEED, Number
from partita_operator.cli.output import OutputFormat, emit, output_option, progress, writing
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, PlanningProblem
from partita_planner.several_sessions.offline import declared_capacity, offline_problem
from partita_runtime.load.arrivals import RateSchedule, parse_trace
from partita_runtime.scheduling.policies.registry import POLICIES, checked_policy
from partita_runtime.simulation.arrivals import arrivals_at, arrivals_from_trace
from partita_runtime.simulation.emulation.executions import BatchExecution
from partita_runtime.simulation.emulation.failures import GpuFailure, RandomFailures
from partita_runtime.simulation.emulation.network import NO_CONTENTION, Contention
from partita_runtime.simulation.emulation.noise import Noise
from partita_runtime.simulation.report import LoadPoint, SimulationReport
from partita_runtime.simulation.scaling import Scaling
from partita_runtime.simulation.simulator import simulate as run

T = TypeVar("T")

_LOADS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
"""Multiples of the planned rate at which goodput is plotted."""


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@profiles_option
@click.option("--session", "name", help="Session to simulate, if the manifests have several.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PipelinePlan manifest to simulate. Default: plan first, for --rate or the declared rate.",
)
@rate_option
@click.option(
    "--load", "load_rate", help="Requests per second to send, or steps such as 0:4,30:8. Default: the planned rate."
)
@click.option("--seconds", type=SECONDS, default=60.0, show_default=True, help="Virtual time to simulate.")
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Random seed; the same seed gives the same report."
)
@click.option(
    "--noise",
    type=Number(0, 100),
    default=0.0,
    show_default=True,
    help="Relative spread of execution times, such as 0.05.",
)
@click.option(
    "--policy",
    callback=lambda _context, _option, name: _known_policy(name),
    help=f"Batching policy instead of the session's: {', '.join(POLICIES)}; some have parameters, such as Timeout:40.",
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with one gap between arrivals (seconds) on each line; repeated if it is too short.",
)
@click.option(
    "--executions",
    "executions_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write one line for each executed batch to this file, as CSV: worker, stage, batch, start and end.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Write figures to this directory: goodput against load, utilization, timeline, batch sizes. Needs matplotlib.",
)
@click.option(
    "--fail",
    "fails",
    multiple=True,
    callback=lambda _context, _option, texts: [_read(GpuFailure.parse, text) for text in texts],
    help="Failure of an accelerator: fast-gpu-0@10 in second 10, fast-gpu-0@10+5 with recovery after 5 s; repeatable.",
)
@click.option(
    "--random-failures",
    callback=lambda _context, _option, text: _read(_random_failures, text),
    help="Mean seconds between failures of each accelerator, and until its recovery, such as 3600,60.",
)
@click.option(
    "--contention",
    type=Number(0, 1, max_open=True),
    help="Concurrent transfers share each link evenly, and other traffic uses this share of it, such as 0.3. Default: "
    "transfers run one after the other.",
)
@click.option(
    "--autoscale/--no-autoscale",
    "autoscaled",
    help="Scale replicas with the load by the session's autoscaling settings, as the operator would.",
)
@click.option(
    "--start-up",
    type=Number(0, MAX_SECONDS),
    default=20.0,
    show_default=True,
    help="Seconds until a replica that --autoscale adds takes requests.",
)
@output_option
def simulate(
    manifests: tuple[Path, ...],
    profile_directory: Path,
    name: str | None,
    plan_file: Path | None,
    rate: int | None,
    load_rate: str | None,
    seconds: float,
    seed: int,
    noise: float,
    policy: str | None,
    trace: Path | None,
    executions_file: Path | None,
    plots: Path | None,
    fails: list[GpuFailure],
    random_failures: RandomFailures | None,
    contention: float | None,
    autoscaled: bool,
    start_up: float,
    output: OutputFormat,
) -> None:
    """Simulate one session under a plan, with the scheduling core that also serves requests.

    Exit code 3 if there is no plan to simulate, 4 if the session misses its attainment.
    """
    found_manifests = read_manifests(manifests)
    sessions = chosen_sessions(found_manifests, (name,) if name else (), rate)
    if len(sessions) != 1:
        raise BadInput(f"the manifests have {len(sessions)} sessions; choose one with --session")
    session = sessions[0]
    free = {pool.metadata.name: declared_capacity(pool) for pool in found_manifests.pools}
    problem = offline_problem(found_manifests.pools, session, read_profiles(profile_directory, manifests), free)
    draw = None if plots is None else load_plots("partita_runtime.simulation.plots").write_plots
    spec = _plan(plan_file, problem)
    arrival = session.spec.rate
    shape = float(arrival.gamma_shape) if arrival.gamma_shape is not None else 1.0
    try:
        load = RateSchedule.parse(load_rate) if load_rate else RateSchedule.constant(problem.rate)
        arrivals = arrivals_at(ArrivalProcess(arrival.arrival), load, shape)
        if trace is not None:
            arrivals = arrivals_from_trace(parse_trace(trace.read_text()))
        simulated = partial(
            run,
            session,
            spec,
            problem.profiles,
            {pool.name: float(pool.spec.bandwidth) for pool in problem.pools},
            seconds=seconds,
            seed=seed,
            noise=Noise(spread=noise),
            failures=(*fails, *([random_failures] if random_failures else [])),
            contention=NO_CONTENTION if contention is None else Contention(True, contention),
            scaling=_scaling(session, spec, problem, free, start_up) if autoscaled else None,
            policy=policy,
            gpus_per_node={pool.name: pool.spec.gpus_per_node for pool in problem.pools},
        )
        with Progress(console=progress, transient=True) as bar:
            task = bar.add_task("simulating", total=1.0)
            found = simulated(
                arrivals,
                timeline=executions_file is not None or draw is not None,
                progress=lambda share: bar.update(task, completed=share),
            )
            if plots is not None and draw is not None:
                at = partial(arrivals_at, ArrivalProcess(arrival.arrival), gamma_shape=shape)
                loads = bar.track([share * problem.rate for share in _LOADS], description="other loads")
                points = [LoadPoint(load, simulated(at(load)).goodput) for load in loads]
                with writing(plots):
                    draw(plots, found, points)
    except (KeyError, ValueError) as error:
        raise BadInput(f"this plan cannot be simulated with these profiles: {error}") from error
    if executions_file is not None:
        _write_executions(found.timeline, executions_file)
    found = replace(found, timeline=())
    emit(json.loads(json.dumps(found.to_json())), output, lambda console: _print(session, found, console))
    if found.attainment < session.spec.slo.attainment.fraction:
        raise SystemExit(ExitCode.MISSED)


def _read(parse: Callable[[str], T], text: str | None) -> T | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _random_failures(text: str) -> RandomFailures:
    try:
        between, down = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a pair of mean times in seconds, such as 3600,60") from error
    return RandomFailures(between, down)


def _scaling(
    session: InferenceSession,
    spec: PipelinePlanSpec,
    problem: PlanningProblem,
    free: Mapping[str, int],
    start_up: float,
) -> Scaling:
    """The operator's scaling of the session, even if the session's mode is off."""
    return Scaling(
        spec,
        session.spec.autoscaling.model_copy(update={"mode": AutoscalingMode.ENABLED}),
        free,
        start_up,
        keeps_planned=session.spec.keeps_planned_replicas,
        slo_seconds=session.spec.slo.latency_ms / 1000,
        gpus_per_node={pool.name: pool.spec.gpus_per_node for pool in problem.pools},
    )


def _known_policy(name: str | None) -> str | None:
    try:
        return name if name is None else checked_policy(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _plan(plan_file: Path | None, problem: PlanningProblem) -> PipelinePlanSpec:
    if plan_file is not None:
        plans = read_manifests([plan_file]).plans
        if len(plans) != 1:
            raise BadInput(f"{plan_file} has {len(plans)} PipelinePlans; give a file with one")
        return plans[0].spec
    outcome = plan(problem)
    if isinstance(outcome, NoPlan):
        click.echo(f"no plan ({outcome.reason}): {outcome.message}", err=True)
        raise SystemExit(ExitCode.NO_PLAN)
    return outcome.plan


def _write_executions(executions: Sequence[BatchExecution], file: Path) -> None:
    with writing(file), file.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(BatchExecution._fields)
        writer.writerows(executions)


def _print(session: InferenceSession, found: SimulationReport, console: Console) -> None:
    table = Table(title=f"{session.key}, simulated", title_justify="left", show_header=False)
    for name, value in found.rows():
        table.add_row(name, value)
    console.print(table)
