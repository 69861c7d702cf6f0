"""`partita top`: shows the status of the pools and sessions of a cluster, once or live."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from partita_api.conditions import Condition, ConditionType
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_operator.cli.cluster.api_server import ApiServer
from partita_operator.cli.cluster.options import ClusterPlace, cluster_options
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import OutputFormat, console, emit, output_option
from partita_operator.reconcile.capacity.cluster import Cluster

Json = dict[str, Any]

_UNKNOWN = "-"


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit. JSON and YAML are always printed once.")
@click.option("--interval", type=Number(0.2, 3600), default=2.0, show_default=True, help="Seconds between updates.")
@cluster_options
@output_option
def top(once: bool, interval: float, place: ClusterPlace, output: OutputFormat) -> None:
    """Show pools and sessions: rates, bad rate, p99 against the SLO, idle fraction and cost, until Ctrl-C.

    The numbers are the operator's last measurements. With --namespace, only the sessions of that namespace.
    """
    server = ApiServer(place)
    if once or output is not OutputFormat.TEXT:
        seen = report(server.cluster(), place.namespace)
        emit(seen, output, lambda out: out.print(tables(seen)))
        return
    _watch(server, place.namespace, interval, console)


def report(cluster: Cluster, namespace: str | None = None) -> Json:
    """The status as plain data. Fractions are from 0 to 1, latencies in milliseconds; None is unknown."""
    sessions = [s for s in cluster.sessions.values() if namespace in (None, s.metadata.namespace)]
    return {
        "pools": [_pool(pool) for _, pool in sorted(cluster.pools.items())],
        "sessions": [_session(session) for session in sorted(sessions, key=lambda session: session.key)],
    }


def tables(seen: Json, problem: str = "") -> Group:
    """The report as tables; `problem` says why it is not up to date."""
    pools = _table("Pools", ("pool", "capacity", "present", "allocated", "free", "idle", "sessions"))
    for pool in seen["pools"]:
        used = (_number(pool[field]) for field in ("capacity", "present", "allocated", "free"))
        pools.add_row(pool["pool"], *used, _percent(pool["idleFraction"]), ", ".join(pool["sessions"]))
    columns = (
        "session",
        "ready",
        "plan",
        "offered/s",
        "goodput/s",
        "bad",
        "p50 ms",
        "p99 ms",
        "SLO ms",
        "idle",
        "cost/h",
    )
    sessions = _table("Sessions", columns)
    for session in seen["sessions"]:
        late = session["p99Ms"] is not None and session["p99Ms"] > session["sloMs"]
        sessions.add_row(
            session["session"],
            Text(session["ready"], style="green" if session["ready"] == "True" else "yellow"),
            session["plan"] or session["reason"],
            *(_number(session[field]) for field in ("offeredRate", "goodput")),
            _percent(session["badRate"]),
            _number(session["p50Ms"]),
            Text(_number(session["p99Ms"]), style="red" if late else ""),
            _number(session["sloMs"]),
            _percent(session["idleFraction"]),
            _number(session["costPerHour"], 2),
        )
    return Group(pools, sessions, *([Text(problem, style="red")] if problem else []))


def _watch(server: ApiServer, namespace: str | None, interval: float, out: Console) -> None:
    seen = report(server.cluster(), namespace)
    with Live(tables(seen), console=out, screen=out.is_terminal, auto_refresh=False) as live:
        while True:
            try:
                time.sleep(interval)
                seen, problem = report(server.cluster(), namespace), ""
            except click.ClickException as error:
                problem = error.message
            live.update(tables(seen, problem), refresh=True)


def _pool(pool: GPUPool) -> Json:
    status = pool.status
    return {
        "pool": pool.metadata.name,
        "capacity": status.capacity,
        "present": status.present,
        "pending": status.pending,
        "allocated": float(status.allocated),
        "free": float(status.free),
        "idleFraction": None if status.idle_fraction is None else float(status.idle_fraction),
        "sessions": list(status.sessions),
    }


def _session(session: InferenceSession) -> Json:
    status, signals = session.status, session.status.signals
    ready = _condition(status.conditions, ConditionType.READY)
    measured = {
        name: None if signals is None else float(getattr(signals, field))
        for name, field in (
            ("offeredRate", "offered_rate"),
            ("goodput", "goodput"),
            ("badRate", "bad_rate"),
            ("idleFraction", "idle_fraction"),
            ("p50Ms", "p50_ms"),
            ("p99Ms", "p99_ms"),
        )
    }
    return {
        "session": session.key,
        "ready": str(ready.status) if ready is not None else "Unknown",
        "reason": ready.reason if ready is not None else "",
        "plan": status.current_plan.name if status.current_plan is not None else None,
        **measured,
        "sloMs": session.spec.slo.latency_ms,
        "costPerHour": float(status.current_plan.cost_per_hour) if status.current_plan is not None else None,
    }


def _condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        words = name in ("pool", "session", "sessions", "ready", "plan")
        table.add_column(name, justify="left" if words else "right", no_wrap=name in ("pool", "session"))
    return table


def _number(value: float | None, decimals: int = 1) -> str:
    return _UNKNOWN if value is None else f"{round(value, decimals):g}"


def _percent(fraction: float | None) -> str:
    return _UNKNOWN if fraction is None else f"{fraction * 100:.1f}%"
