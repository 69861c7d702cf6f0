"""`partita subclusters`: distributes many models over sub-clusters, offline."""

import time
from math import inf
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from partita_api.fields.quantity import Quantity
from partita_api.manifests import NotYamlError, parse_yaml
from partita_api.meta import SpecModel
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_planner.solver.deadline import Deadline
from partita_planner.subclusters.balanced_partition import partition
from partita_planner.subclusters.problem import (
    BadSubclustersError,
    NoPartition,
    Partition,
    ServedModel,
    SubclusterProblem,
)

MAX_SUBCLUSTERS: Final = 1000
MAX_AMOUNT: Final = 1e15
"""The largest rate, cost and weight that an option accepts."""


class ModelLoad(SpecModel):
    """One model in the file."""

    name: str
    rate: float
    """Requests per second."""
    static_memory: Quantity
    """Bytes while it is loaded."""
    dynamic_memory: Quantity = Quantity(0)
    """Further bytes while it runs."""
    load_cost: float = 1.0
    """Cost of loading or unloading it."""
    subcluster: int | None = None
    """Number of its present sub-cluster, from 0."""


class ModelLoads(SpecModel):
    """The content of the file."""

    models: tuple[ModelLoad, ...]


@click.command()
@click.argument("models", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clusters", type=click.IntRange(1, MAX_SUBCLUSTERS), required=True, help="Number of sub-clusters.")
@click.option(
    "--memory", metavar="QUANTITY", help="Memory of each GPU of a sub-cluster, such as 80Gi. Default: no limit."
)
@click.option(
    "--max-rate",
    type=Number(0, MAX_AMOUNT),
    help="Largest rate of a sub-cluster, in requests per second. Default: no limit.",
)
@click.option(
    "--max-change", type=Number(0, MAX_AMOUNT), help="Largest total cost of loading and unloading. Default: no limit."
)
@click.option(
    "--memory-weight",
    type=Number(0, MAX_AMOUNT),
    default=1.0,
    show_default=True,
    help="Weight of the memory imbalance; the rate imbalance has weight 1.",
)
@click.option("--time-limit", type=Number(0.1, 3600), default=10, show_default=True, help="Seconds to solve.")
@output_option
def subclusters(
    models: Path,
    clusters: int,
    memory: str | None,
    max_rate: float | None,
    max_change: float | None,
    memory_weight: float,
    time_limit: float,
    output: OutputFormat,
) -> None:
    """Distribute the models in MODELS (a YAML file; see docs/tasks/subclusters.md) over sub-clusters.

    Every GPU of a sub-cluster has all of its models loaded. The command balances rates and memory within the limits of
    GPUs, dispatchers and changes. It needs no cluster. Exit code 3 if the models do not fit.
    """
    problem = _problem(_read(models), clusters, memory, max_rate, max_change, memory_weight)
    try:
        found = partition(problem, Deadline.after(time_limit, time.perf_counter))
    except BadSubclustersError as error:
        raise BadInput(f"{models}: {error}") from error
    if isinstance(found, NoPartition):
        refused = {
            "reason": str(found.reason),
            "message": found.message,
            "subclustersNeeded": found.subclusters_needed,
        }
        emit(refused, output, lambda console: console.print(f"no partition ({found.reason}): {found.message}"))
        raise SystemExit(ExitCode.NO_PLAN)
    emit(_document(found, problem), output, lambda console: _print(found, problem, console))


def _read(file: Path) -> ModelLoads:
    try:
        return ModelLoads.model_validate(parse_yaml(file.read_text()))
    except (OSError, UnicodeDecodeError, NotYamlError, ValidationError) as error:
        raise BadInput(f"{file} is not a list of models as in docs/tasks/subclusters.md: {error}") from error


def _problem(
    loaded: ModelLoads,
    clusters: int,
    memory: str | None,
    max_rate: float | None,
    max_change: float | None,
    memory_weight: float,
) -> SubclusterProblem:
    try:
        most = inf if memory is None else float(Quantity(memory))
    except ValueError as error:
        raise BadInput(f"--memory {memory} is not a quantity: give bytes, such as 80Gi") from error
    return SubclusterProblem(
        models=tuple(
            ServedModel(m.name, m.rate, float(m.static_memory), float(m.dynamic_memory), m.load_cost)
            for m in loaded.models
        ),
        subclusters=clusters,
        max_memory=most,
        max_rate=inf if max_rate is None else max_rate,
        memory_weight=memory_weight,
        current={m.name: m.subcluster for m in loaded.models if m.subcluster is not None},
        max_change_cost=inf if max_change is None else max_change,
    )


def _document(found: Partition, problem: SubclusterProblem) -> dict[str, Any]:
    balance = found.balance
    return {
        "objective": balance.objective,
        "bound": found.bound,
        "rateImbalance": balance.rate_imbalance,
        "memoryImbalance": balance.memory_imbalance,
        "changeCost": balance.change_cost,
        "subclusters": [
            {
                "subcluster": j,
                "models": [m.name for m in models],
                "rate": sum(m.rate for m in models),
                "staticBytes": round(sum(m.static_bytes for m in models)),
            }
            for j, models in enumerate(_models_by_subcluster(found, problem))
        ],
        "moved": sorted(name for name, j in problem.current.items() if found.subcluster[name] != j),
    }


def _models_by_subcluster(found: Partition, problem: SubclusterProblem) -> list[list[ServedModel]]:
    return [[m for m in problem.models if found.subcluster[m.name] == j] for j in range(problem.subclusters)]


def _print(found: Partition, problem: SubclusterProblem, console: Console) -> None:
    document = _document(found, problem)
    table = Table(title=f"{len(problem.models)} models, {problem.subclusters} sub-clusters", title_justify="left")
    for name in ("sub-cluster", "models", "requests/s", "memory, GiB"):
        table.add_column(name, justify="left" if name == "models" else "right")
    for row in document["subclusters"]:
        table.add_row(
            str(row["subcluster"]), ", ".join(row["models"]), f"{row['rate']:g}", f"{row['staticBytes'] / 2**30:.2f}"
        )
    console.print(table)
    balance = found.balance
    console.print(
        f"imbalance (max - min) / average: rate {balance.rate_imbalance:.4f}, memory {balance.memory_imbalance:.4f}; "
        f"objective {balance.objective:.4f}, proven bound {found.bound:.4f}; change costs {balance.change_cost:g}",
        markup=False,
    )
