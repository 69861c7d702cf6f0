"""`partita demo`: serves an example end to end on this machine, and writes a report."""

import json
import shlex
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import click

from partita_devtools.cli.dev import api_server_option
from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.interruption import stopped_if_interrupted
from partita_devtools.demo.config import DEFAULT_PHASES, DemoConfig
from partita_devtools.demo.console import print_result, slo_met
from partita_devtools.demo.example import Example, demonstration, read_example
from partita_devtools.demo.machine import LEAST_MEMORY_GIB, check_memory, measure_machine
from partita_devtools.demo.report.write import write_report
from partita_devtools.demo.result import DemoResult
from partita_devtools.demo.run import run_demo
from partita_devtools.environment import (
    DEFAULT_RAY,
    DEFAULT_STATE_DIR,
    ApiServerChoice,
    DevConfig,
    DevEnvironment,
    dev_up,
    load_dev_environment,
)
from partita_devtools.operator_process import start_operator
from partita_operator.cli.doctor.machine_probe import memory_facts
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.option_types import SEED, Number
from partita_operator.cli.output import OutputFormat, emit, output_option, report, writing


@click.command()
@click.option(
    "--example",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("examples/ocr"),
    show_default=True,
    help="Folder with manifests and the Python package that they name.",
)
@click.option(
    "--report",
    "report_directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder for index.html.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="Folder for state, kubeconfig and logs.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this cluster instead of starting a control plane.",
)
@api_server_option(ApiServerChoice.AT_HAND)
@click.option(
    "--seconds",
    type=Number(1, 86_400),
    default=DEFAULT_PHASES[0].seconds,
    show_default=True,
    help="Duration of the planned load. Double load and planned load follow, each half as long.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 1_000_000),
    help="Requests per second. Default: what this machine can carry, at most the rate of the manifest.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of arrivals and inputs.")
@output_option
@dev_errors_as_failure
def demo(
    directory: Path,
    report_directory: Path,
    state_dir: Path,
    kubeconfig: Path | None,
    api_server: ApiServerChoice,
    seconds: float,
    rate: int | None,
    seed: int,
    output: OutputFormat,
) -> None:
    """Start an API server, Ray and the operator, serve an example, send load, and write a report.

    Everything keeps running afterwards; `partita dev down` stops it. Ctrl-C stops what this command has started. Exit
    code 4 if the planned load was not served within the SLO, if answers differ from those of the whole models, or if
    more than 1 % of the characters in pictures are read otherwise than by the example's package.
    """
    started = time.monotonic()
    example = read_example(directory)
    running = load_dev_environment(state_dir)
    if running is None or not running.ray.is_running():
        check_memory(memory_facts(), getattr(demonstration(example), "MEMORY_GIB", LEAST_MEMORY_GIB))
    machine = measure_machine()
    with stopped_if_interrupted() as undo:
        environment = _environment(example, state_dir, api_server, kubeconfig, undo)
        config = DemoConfig(
            example=directory,
            command=shlex.join(["partita", *sys.argv[1:]]),
            phases=tuple(replace(p, seconds=p.seconds * seconds / DEFAULT_PHASES[0].seconds) for p in DEFAULT_PHASES),
            machine=machine,
            rate=rate,
            seed=seed,
            started=started,
        )
        start_operator(environment, report, undo=undo)
        result = run_demo(environment, config, report)
    with writing(report_directory):
        page = write_report(result, report_directory)
    emit(_facts(result, page), output, lambda console: print_result(result, console))
    report(f"report, {time.monotonic() - started:.0f} s after the start: {page}")
    top = shlex.join(["partita", "top", "--kubeconfig", str(environment.kubeconfig)])
    report(f"Everything is still running; to watch it: {top}")
    report(f"To stop it: {shlex.join(['partita', 'dev', 'down', '--state-dir', str(state_dir)])}")
    if not slo_met(result):
        raise SystemExit(ExitCode.MISSED)


def _environment(
    example: Example, state_dir: Path, api_server: ApiServerChoice, kubeconfig: Path | None, undo: ExitStack
) -> DevEnvironment:
    ray = replace(DEFAULT_RAY, nodes=example.ray_nodes, environment={"PYTHONPATH": str(example.python_path)})
    return dev_up(DevConfig(state_dir, api_server, kubeconfig, ray=ray), report, undo=undo)


def _facts(result: DemoResult, page: Path) -> dict[str, object]:
    """The result for scripts."""
    return {
        "session": result.session.key,
        "plan": result.plan.metadata.name,
        "cost_per_hour": str(result.plan.spec.cost.allocated_per_hour),
        "first_answer_after_s": round(result.first_answer_after_s, 1),
        "ready_after_s": round(result.ready_after_s, 1),
        "slo_met": slo_met(result),
        "phases": [
            {"name": phase.name, **_without_series(json.loads(phase.report.to_json()))} for phase in result.phases
        ],
        "verification": asdict(result.verification) if result.verification else None,
        "pictures": [
            {"name": p.name, "served": p.served, "characters": p.characters, "different": p.different}
            for p in result.pictures
        ],
        "report": str(page),
    }


def _without_series(load_report: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in load_report.items() if k not in ("seconds", "latency_percentiles_ms")}
