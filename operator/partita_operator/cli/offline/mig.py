"""`partita mig`: partitions GPUs into MIG slices for a load, offline."""

import shlex
import time
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click
import yaml
from rich.console import Console
from rich.table import Table

from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import OutputFormat, emit, output_option, report, writing
from partita_planner.mig.demand import MigDemand, pack, pack_by_paris, parse_demand
from partita_planner.mig.errors import MigError
from partita_planner.mig.layouts import Layout
from partita_planner.mig.manifests import (
    CONFIG_LABEL,
    FLEET_LABEL,
    managed_pools,
    mig_parted_config,
    node_configs,
    slice_pools,
)
from partita_planner.mig.packing import NoPacking, Packing
from partita_planner.mig.products import ProductTable, known_products, parse_products
from partita_planner.solver.deadline import Deadline

STRATEGIES: Final[Mapping[str, Callable[[MigDemand, ProductTable, Deadline], Packing | NoPacking]]] = {
    "exact": pack,
    "paris": pack_by_paris,
}


@click.command()
@click.argument("demand", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="exact",
    show_default=True,
    help="exact: the fewest GPUs for the load, or the most throughput if DEMAND gives gpus. paris: PARIS' algorithm "
    "(one model, given gpus).",
)
@click.option(
    "--products",
    "products_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with MIG profiles of further products, or in place of those of known products.",
)
@click.option("--time-limit", type=Number(0.1, 3600), default=10, show_default=True, help="Seconds to solve.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to write mig-parted.yaml and pools.yaml to.",
)
@click.option("--managed", is_flag=True, help="Write pools whose GPUs the operator partitions (docs/tasks/gpus.md).")
@output_option
def mig(
    demand: Path,
    strategy: str,
    products_file: Path | None,
    time_limit: float,
    out: Path | None,
    managed: bool,
    output: OutputFormat,
) -> None:
    """Partition GPUs into MIG slices for the load in DEMAND (a YAML file; see docs/tasks/mig.md).

    Prints how many GPUs get which slices, the mig-parted configuration of each kind of node, and a GPUPool for each
    kind of slice. Needs no cluster. Exit code 3 if the load cannot be packed.
    """
    try:
        load = parse_demand(_text(demand), str(demand))
        products = known_products()
        if products_file is not None:
            products = products.overridden_by(parse_products(_text(products_file), str(products_file)))
        found = STRATEGIES[strategy](load, products, Deadline.after(time_limit, time.perf_counter))
    except MigError as error:
        raise BadInput(str(error)) from error
    if isinstance(found, NoPacking):
        refused = {"reason": str(found.reason), "message": found.message, "gpusMissing": found.gpus_missing}
        emit(refused, output, lambda console: console.print(f"no packing ({found.reason}): {found.message}"))
        raise SystemExit(ExitCode.NO_PLAN)
    document = _document(found, load, managed)
    if out is not None:
        _write(out, document)
    emit(document, output, lambda console: _print(found, load, managed, console))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error


def _document(packing: Packing, demand: MigDemand, managed: bool) -> dict[str, Any]:
    configs = node_configs(packing, demand.nodes)
    return {
        "product": packing.product.name,
        "gpus": packing.gpus,
        "scale": round(packing.scale, 6),
        "bound": round(packing.bound, 6) if isfinite(packing.bound) else None,
        "layouts": [{"gpus": count, "slices": dict(layout.counts)} for layout, count in packing.layouts],
        "instances": [
            {"model": model, "slice": name, "count": count} for (model, name), count in packing.instances.items()
        ],
        "spare": packing.spare,
        "nodes": [{"config": c.name, "nodes": c.nodes, "labels": _labels(c.name, demand, managed)} for c in configs],
        "migParted": mig_parted_config(configs, demand.nodes),
        "pools": [
            {"apiVersion": pool.api_version, "kind": pool.kind}
            | pool.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"status"})
            for pool in (managed_pools if managed else slice_pools)(packing, demand.nodes)
        ],
    }


def _labels(config: str, demand: MigDemand, managed: bool) -> dict[str, str]:
    return {FLEET_LABEL: demand.fleet} | ({} if managed else {CONFIG_LABEL: config})


def _write(directory: Path, document: Mapping[str, Any]) -> None:
    texts = {
        "mig-parted.yaml": yaml.safe_dump(document["migParted"], sort_keys=False),
        "pools.yaml": yaml.safe_dump_all(document["pools"], sort_keys=False),
    }
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with writing(directory / name):
            (directory / name).write_text(text)
        report(f"wrote {directory / name}")


def _print(packing: Packing, demand: MigDemand, managed: bool, console: Console) -> None:
    table = Table(title=f"{packing.gpus} x {packing.product.name}", title_justify="left")
    for name in ("node configuration", "nodes", "GPUs of a node", "slices of a GPU"):
        table.add_column(name, justify="right" if name in ("nodes", "GPUs of a node") else "left")
    for config in node_configs(packing, demand.nodes):
        for layout in dict.fromkeys(config.gpus):
            table.add_row(config.name, str(config.nodes), str(config.gpus.count(layout)), _slices(layout))
    console.print(table)
    slices = Table("model", "slice", "in use", "busy", title="Slices", title_justify="left")
    for (model, name), count in packing.instances.items():
        busy = sum(t for (owner, _, k), t in packing.time.items() if (owner, k) == (model, name))
        slices.add_row(model, name, str(count), f"{busy / count:.0%}")
    for name, count in packing.spare.items():
        slices.add_row("(not in use)", name, str(count), "")
    console.print(slices)
    console.print(_in_words(packing, demand, managed), markup=False)


def _slices(layout: Layout) -> str:
    return " + ".join(f"{count} x {name}" for name, count in layout.counts.items())


def _in_words(packing: Packing, demand: MigDemand, managed: bool) -> str:
    proven = f" (bound {packing.bound:.4g})" if isfinite(packing.bound) else ""
    served = (
        f"serves {packing.scale:.4g} times the load{proven}"
        if demand.models and demand.gpus is not None
        else f"at least {packing.bound:.0f} GPUs are needed"
    )
    return "\n".join([served, *_label_commands(packing, demand, managed)])


def _label_commands(packing: Packing, demand: MigDemand, managed: bool) -> list[str]:
    """For each configuration of nodes, how many nodes to label, and the command with the name of a node left open."""
    lines: dict[str, int] = {}
    for config in node_configs(packing, demand.nodes):
        labels = shlex.join(f"{key}={value}" for key, value in _labels(config.name, demand, managed).items())
        lines[labels] = lines.get(labels, 0) + config.nodes
    return [
        f"label {count} node{'s' * (count > 1)}: kubectl label node NODE {labels}" for labels, count in lines.items()
    ]
