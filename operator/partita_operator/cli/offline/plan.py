"""`partita plan`: plans sessions offline, compares strategies, and shows what would change of a current plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
import yaml
from rich.console import Console

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.manifests import Manifests
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_api.profile import Profile
from partita_operator.cli.cluster.name_completion import complete_session_or_file
from partita_operator.cli.cluster.options import (
    ClusterPlace,
    cluster_options,
    is_session_reference,
    session_name,
)
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.manifests import read_manifests, read_profiles
from partita_operator.cli.offline.countdown import counting_down
from partita_operator.cli.offline.drawing import load_plots
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import OutputFormat, emit, output_option, report, writing
from partita_operator.cli.plan_report import (
    comparison_data,
    difference_data,
    outcome_data,
    print_comparison,
    print_differences,
    print_outcome,
    print_together,
    together_data,
)
from partita_planner.explain.difference import differences
from partita_planner.planning import EXPLAIN_SECONDS
from partita_planner.planning import plan as solve
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_planner.several_sessions.joint_planning import JointPlanningError
from partita_planner.several_sessions.offline import declared_capacity, plan_offline, plan_offline_jointly
from partita_planner.strategies import STRATEGIES

profiles_option = click.option(
    "--profiles",
    "profile_directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with profiles, as `partita profile` writes them.",
)
rate_option = click.option(
    "--rate",
    type=click.IntRange(1, 10**12),
    help="Requests per second to plan for. Default: the declared rate of each session.",
)

Outcomes = Sequence[tuple[InferenceSession, Outcome]]
Draw = Callable[[Iterable[GPUPool], Outcomes], None]
"""Draws the plans of these outcomes on these pools."""
Compared = Sequence[tuple[InferenceSession, dict[str, Outcome]]]
"""The outcomes of one session by strategy."""


def _strategies(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The names in `a,b,c`, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in (value or "").split(",") if name.strip()))
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise click.BadParameter(
            f"there is no strategy {', '.join(unknown)}; choose from {', '.join(sorted(STRATEGIES))}."
        )
    if value is not None and not names:
        raise click.BadParameter(f"no strategy is given; choose from {', '.join(sorted(STRATEGIES))}.")
    return names


@click.command()
@click.argument(
    "what",
    metavar="MANIFESTS...|isess/NAME",
    nargs=-1,
    required=True,
    shell_complete=complete_session_or_file,
)
@click.option(
    "--profiles",
    "profile_directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with profiles, as `partita profile` writes them; needed for manifests.",
)
@rate_option
@click.option("--session", "names", multiple=True, help="Only this session; repeatable.")
@click.option("--strategy", type=click.Choice(sorted(STRATEGIES)), help="Strategy to use instead of the sessions' own.")
@click.option("--compare", callback=_strategies, metavar="A,B,...", help="Compare the plans of several strategies.")
@click.option(
    "--diff",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the current PipelinePlan: show what the new plan changes. Exit code 4 if it changes anything.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the plans to this file, as PipelinePlans."
)
@click.option(
    "--explain",
    "explain_seconds",
    type=Number(0, 3600),
    default=EXPLAIN_SECONDS,
    show_default=True,
    help="Seconds for further plans with one more GPU, a longer SLO or one pool less, which show what limits the plan.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Write figures to this directory: pipelines, latency budgets, accelerators by pool. Needs matplotlib.",
)
@cluster_options
@click.option("--together", is_flag=True, help="Plan all sessions together instead of one after the other.")
@output_option
def plan(
    what: tuple[str, ...],
    profile_directory: Path | None,
    rate: int | None,
    names: tuple[str, ...],
    strategy: str | None,
    compare: tuple[str, ...],
    plan_file: Path | None,
    out: Path | None,
    explain_seconds: float,
    plots: Path | None,
    place: ClusterPlace,
    together: bool,
    output: OutputFormat,
) -> None:
    """Plan the InferenceSessions in MANIFESTS (files or directories, with the GPUPools they use), or isess/NAME.

    Sessions are planned in their order; each one uses the GPUs that the sessions before it leave. With --together, the
    plans have the largest throughput, or the least cost, of all sessions. Manifests need no cluster. isess/NAME is
    planned as the operator of its cluster would plan it now; nothing changes there. Exit code 3 if a session has no
    plan (with --compare: if no strategy has one); the reason says what would make a plan possible.
    """
    if is_session_reference(what[0]):
        if len(what) > 1 or profile_directory or names or compare or plan_file or out or together:
            raise click.UsageError("isess/NAME allows only --rate, --strategy, --explain, --plots and --output.")
        draw = _drawing(plots)
        raise SystemExit(_plan_in_cluster(place, session_name(what[0]), rate, strategy, explain_seconds, draw, output))
    if profile_directory is None:
        raise click.UsageError("Missing option '--profiles': the directory with the profiles of the manifests' models.")
    manifests = _paths(what)
    if compare and (strategy or plan_file or out or plots):
        raise click.UsageError("--compare excludes --strategy, --diff, --out and --plots.")
    if together and (compare or plan_file):
        raise click.UsageError("--together excludes --compare and --diff.")
    draw = _drawing(plots)
    found, profiles = read_manifests(manifests), read_profiles(profile_directory, manifests)
    sessions = chosen_sessions(found, names, rate, strategy)
    if compare:
        raise SystemExit(_emit_comparison(_compare(found, sessions, profiles, compare), output))
    if together:
        raise SystemExit(_plan_together(found, sessions, profiles, explain_seconds, draw, out, output))
    current = _current_plan(plan_file, sessions) if plan_file else {}
    answers = _plan(found, sessions, profiles, explain_seconds, current)
    draw(found.pools, answers)
    if out is not None:
        _write(out, answers)
    raise SystemExit(_emit_difference(answers, current, output) if current else _emit_plans(answers, output))


def _paths(what: tuple[str, ...]) -> list[Path]:
    """The manifests. Raises BadParameter if a file does not exist."""
    if missing := [text for text in what if not Path(text).exists()]:
        raise click.BadParameter(
            f"there is no file or directory {missing[0]!r}; a session of a cluster is given as isess/NAME."
        )
    return [Path(text) for text in what]


def _plan_in_cluster(
    place: ClusterPlace,
    name: str,
    rate: int | None,
    strategy: str | None,
    explain_seconds: float,
    draw: Draw,
    output: OutputFormat,
) -> ExitCode:
    # Imported only here: planning from manifests does not need the Kubernetes client.
    from partita_operator.cli.cluster.api_server import ApiServer
    from partita_operator.cli.cluster.planning_problem import problem_of

    server = ApiServer(place)
    session = server.session(name)
    cluster = server.cluster()
    problem = problem_of(_changed(session, rate, strategy), cluster, server.profiles(), rate)
    limit = session.spec.planner.time_limit_seconds
    report(f"planning {session.key} for {problem.rate:g} requests/s, in {limit} s at most")
    outcome = _solved(problem, explain_seconds)
    draw(cluster.pools.values(), [(session, outcome)])
    before = problem.current_plan
    changes = differences(before, outcome.plan) if before is not None and isinstance(outcome, Planned) else ()

    def table(console: Console) -> None:
        print_outcome(session, outcome, console)
        if before is not None and isinstance(outcome, Planned):
            print_differences(session, outcome, changes, console)

    emit(difference_data(session, outcome, changes), output, table)
    return _exit_code([outcome])


def _plan_together(
    found: Manifests,
    sessions: Sequence[InferenceSession],
    profiles: Sequence[Profile],
    explain_seconds: float,
    draw: Draw,
    out: Path | None,
    output: OutputFormat,
) -> ExitCode:
    try:
        with counting_down(
            f"planning {len(sessions)} sessions together", sum(s.spec.planner.time_limit_seconds for s in sessions)
        ):
            planned = plan_offline_jointly(
                found.pools, sessions, profiles, lambda problem: solve(problem, explain_seconds=explain_seconds)
            )
    except JointPlanningError as error:
        raise BadInput(str(error)) from error
    answers = list(zip(sessions, planned.outcomes, strict=True))
    draw(found.pools, answers)
    if out is not None:
        _write(out, answers)
    emit(together_data(answers, planned), output, lambda console: print_together(answers, planned, console))
    return _worst(_exit_code([outcome]) for outcome in planned.outcomes)


def _emit_plans(answers: Outcomes, output: OutputFormat) -> ExitCode:
    def table(console: Console) -> None:
        for answer in answers:
            print_outcome(*answer, console)

    emit([outcome_data(*answer) for answer in answers], output, table)
    return _worst(_exit_code([outcome]) for _, outcome in answers)


def _emit_comparison(compared: Compared, output: OutputFormat) -> ExitCode:
    def table(console: Console) -> None:
        for one in compared:
            print_comparison(*one, console)

    emit([comparison_data(*one) for one in compared], output, table)
    return _worst(_exit_code(list(outcomes.values())) for _, outcomes in compared)


def _emit_difference(answers: Outcomes, current: Mapping[str, PipelinePlanSpec], output: OutputFormat) -> ExitCode:
    session, outcome = next(answer for answer in answers if answer[0].key in current)
    changes = differences(current[session.key], outcome.plan) if isinstance(outcome, Planned) else ()
    emit(
        difference_data(session, outcome, changes),
        output,
        lambda console: print_differences(session, outcome, changes, console),
    )
    return ExitCode.MISSED if changes else _exit_code([outcome])


def chosen_sessions(
    found: Manifests, names: tuple[str, ...], rate: int | None, strategy: str | None = None
) -> list[InferenceSession]:
    """The sessions of the manifests, only those in `names` if any, with another rate or strategy if given.

    Raises BadInput if there are none.
    """
    sessions = [s for s in found.sessions if not names or s.metadata.name in names]
    if not sessions:
        there = ", ".join(s.metadata.name for s in found.sessions) or "none"
        raise BadInput(f"the manifests have no such InferenceSession; they have: {there}")
    return [_changed(session, rate, strategy) for session in sessions]


def _changed(session: InferenceSession, rate: int | None, strategy: str | None) -> InferenceSession:
    spec = session.spec
    if rate is not None:
        spec = spec.model_copy(update={"rate": spec.rate.model_copy(update={"requests_per_second": rate})})
    if strategy is not None:
        spec = spec.model_copy(update={"planner": spec.planner.model_copy(update={"strategy": strategy})})
    return session.model_copy(update={"spec": spec})


def _plan(
    found: Manifests,
    sessions: Sequence[InferenceSession],
    profiles: Sequence[Profile],
    explain_seconds: float,
    current: Mapping[str, PipelinePlanSpec],
) -> Outcomes:
    answers = []
    for session, outcome in plan_offline(
        found.pools, sessions, profiles, lambda problem: _solved(problem, explain_seconds), current
    ):
        answers.append((session, outcome))
        number = f"{len(answers)} of {len(sessions)}"
        report(f"planned {session.key} for {session.spec.rate.requests_per_second} requests/s ({number})")
    return answers


def _solved(problem: PlanningProblem, explain_seconds: float) -> Outcome:
    with counting_down(f"planning {problem.session.name}", problem.spec.planner.time_limit_seconds):
        return solve(problem, explain_seconds=explain_seconds)


def _compare(
    found: Manifests, sessions: Sequence[InferenceSession], profiles: Sequence[Profile], strategies: Sequence[str]
) -> Compared:
    """Every session's outcomes by strategy. Each strategy plans all sessions in their order."""
    answers: Compared = [(session, {}) for session in sessions]
    for name in strategies:
        changed = [_changed(session, None, name) for session in sessions]
        for (_, outcomes), (_, outcome) in zip(answers, _plan(found, changed, profiles, 0, {}), strict=True):
            outcomes[name] = outcome
    return answers


def _current_plan(plan_file: Path, sessions: Sequence[InferenceSession]) -> dict[str, PipelinePlanSpec]:
    """The plan in the file, by the key of its session. Raises BadInput if `sessions` does not contain the session."""
    plans = read_manifests([plan_file]).plans
    if len(plans) != 1:
        raise BadInput(f"{plan_file} has {len(plans)} PipelinePlans; give a file with one")
    (meta, spec) = plans[0].metadata, plans[0].spec
    for session in sessions:
        same_namespace = (meta.namespace or "default") == session.namespace
        if spec.session.name == session.metadata.name and same_namespace:
            return {session.key: spec}
    planned = ", ".join(session.key for session in sessions)
    raise BadInput(
        f"{plan_file} is a plan of session {meta.namespace or 'default'}/{spec.session.name}, "
        f"but the sessions to plan are: {planned}"
    )


def _drawing(directory: Path | None) -> Draw:
    """Writes the figures of the plans to `directory`, if there is one."""
    if directory is None:
        return lambda _pools, _answers: None
    write_plan_plots = load_plots("partita_operator.cli.offline.plan_plots").write_plan_plots

    def draw(pools: Iterable[GPUPool], answers: Outcomes) -> None:
        capacity = {pool.metadata.name: declared_capacity(pool) for pool in pools}
        for session, outcome in answers:
            if isinstance(outcome, Planned):
                with writing(directory):
                    write_plan_plots(directory, session, outcome.plan, capacity)

    return draw


def _write(path: Path, answers: Outcomes) -> None:
    """The plans as manifests, with the names that the operator gives."""
    plans = [
        PipelinePlan(
            metadata=ObjectMeta(
                name=f"{session.metadata.name}-{outcome.plan.inputs_digest[:8]}", namespace=session.metadata.namespace
            ),
            spec=outcome.plan,
        )
        for session, outcome in answers
        if isinstance(outcome, Planned)
    ]
    documents = [p.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"}) for p in plans]
    with writing(path):
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False))


def _exit_code(outcomes: Sequence[Outcome]) -> ExitCode:
    """The exit code for one session by some strategies: success if one of them has a plan."""
    if any(isinstance(outcome, Planned) for outcome in outcomes):
        return ExitCode.OK
    wrong = any(isinstance(o, NoPlan) and o.reason is NoPlanReason.INVALID_SESSION for o in outcomes)
    return ExitCode.BAD_INPUT if wrong else ExitCode.NO_PLAN


def _worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code for several sessions: bad input before no plan."""
    found = set(codes)
    return next((code for code in (ExitCode.BAD_INPUT, ExitCode.NO_PLAN) if code in found), ExitCode.OK)
