"""`partita load`: sends open-loop load to a session over HTTP."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import click
import numpy as np

from partita_api.inferencesession import ArrivalProcess
from partita_api.session.module import DType
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.option_types import SECONDS, SEED, Number
from partita_operator.cli.output import OutputFormat, emit, output_option, report, writing
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.load.arrivals import RateSchedule, Times, arrival_times, parse_trace, trace_times
from partita_runtime.load.event_log import read_log
from partita_runtime.load.generator import LoadConfig, LoadRun, Progress, run_load
from partita_runtime.load.report import records_csv
from partita_runtime.load.table import report_table
from partita_runtime.serving.protocol.inference_client import Payload, client_headers, encode_request, model_url

RANDOM_PAYLOADS = 8
_LEAST_SECONDS = 0.1
RETRY_S = 2.0
REPORT_EVERY_S = 30.0

Input = tuple[str, DType, list[int]]
"""Name, type and shape of an input as the session describes it; the first dimension is the batch."""


@click.command()
@click.argument("url")
@click.option("--rate", default="10", show_default=True, help="Requests per second, or steps such as 0:4,30:8,60:2.")
@click.option("--seconds", type=SECONDS, default=60.0, show_default=True, help="Duration of the load.")
@click.option("--slo-ms", type=Number(1, 600_000), required=True, help="Latency SLO of the requests.")
@click.option(
    "--attainment",
    type=Number(0, 1),
    default=0.99,
    show_default=True,
    help="Share of requests that must be answered within the SLO.",
)
@click.option(
    "--process",
    type=click.Choice([str(p) for p in ArrivalProcess]),
    default=str(ArrivalProcess.POISSON),
    show_default=True,
    help="Arrival process.",
)
@click.option(
    "--gamma-shape", type=Number(0.001, 1000), default=1.0, help="Shape of Gamma arrivals; below 1 they are bursty."
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with one gap between arrivals (seconds) on each line, instead of --rate.",
)
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Log of requests, each line a CloudEvent in JSON of a session's request log or KServe's logger: sent at its "
    "times, instead of --rate for --seconds.",
)
@click.option(
    "--speed", type=Number(0.001, 1000), default=1.0, show_default=True, help="How many times faster to --replay."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of arrivals and random inputs.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=30.0, help="Seconds until a request is cancelled.")
@click.option(
    "--wait",
    "wait_s",
    type=Number(0, 86_400),
    default=0.0,
    show_default=True,
    help="Seconds to wait until the session answers, before the load.",
)
@click.option(
    "--payload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs as .npz: tensors by name; the first dimension is the request. Default: random, of the model's shape.",
)
@click.option(
    "--credentials",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the API key or token of a client, if the session authenticates its clients.",
)
@click.option(
    "--csv", type=click.Path(dir_okay=False, path_type=Path), help="Write one line for each request to this file."
)
@output_option
def load(
    url: str,
    rate: str,
    seconds: float,
    slo_ms: float,
    attainment: float,
    process: str,
    gamma_shape: float,
    trace: Path | None,
    replay: Path | None,
    speed: float,
    seed: int,
    timeout_s: float,
    wait_s: float,
    payload: Path | None,
    credentials: Path | None,
    csv: Path | None,
    output: OutputFormat,
) -> None:
    """Send requests to the session at URL, such as http://127.0.0.1:8000/default/traffic.

    Requests are sent at their arrival times, even if earlier ones have no answer yet. Latency counts from the arrival
    time. Exit code 4 if fewer than --attainment of them are answered within --slo-ms.
    """
    generator = np.random.default_rng(seed)
    endpoint = _endpoint(url)
    sent = _authorization(credentials) if credentials is not None else {}
    try:
        payloads = _from_file(payload) if payload is not None else None
        if replay is not None:
            schedule, payloads = _replayed(replay, endpoint, speed)
            seconds = max(float(schedule[-1]), _LEAST_SECONDS)
        else:
            schedule = _schedule(trace, rate, ArrivalProcess(process), gamma_shape, seconds, generator)
        inputs = _inputs(endpoint, sent, wait_s) if payloads is None or wait_s > 0 else []
        requests = _random(inputs, generator) if payloads is None else payloads
        config = LoadConfig(
            url=f"{endpoint}/infer",
            payloads=[replace(request, headers={**request.headers, **sent}) for request in requests],
            schedule=schedule,
            duration_s=seconds,
            slo_s=slo_ms / 1e3,
            timeout_s=max(timeout_s, slo_ms / 1e3),
        )
    except (ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise BadInput(str(error)) from error
    run = asyncio.run(run_load(config, partial(_show_progress, seconds)))
    if csv is not None:
        with writing(csv):
            csv.write_text(records_csv(run.records))
    _print(run, output)
    if run.report.attainment < attainment:
        raise SystemExit(ExitCode.MISSED)


def _endpoint(url: str) -> str:
    """The URL of the session's model. Raises BadInput if `url` cannot be that of a session."""
    try:
        return model_url(url)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _authorization(credentials: Path) -> dict[str, str]:
    """The header with a client's credentials. Raises BadInput, which does not repeat them."""
    try:
        return client_headers(credentials.read_text(errors="replace"))
    except ValueError as error:
        raise BadInput(f"{credentials} cannot be used: {error}") from error


def _schedule(
    trace: Path | None,
    rate: str,
    process: ArrivalProcess,
    gamma_shape: float,
    seconds: float,
    generator: np.random.Generator,
) -> Times:
    if trace is not None:
        return trace_times(parse_trace(trace.read_text()), seconds)
    return arrival_times(process, RateSchedule.parse(rate), seconds, generator, gamma_shape)


def _replayed(log: Path, endpoint: str, speed: float) -> tuple[Times, list[Payload]]:
    """The times and the requests of a log. Raises ValueError."""
    with log.open(encoding="utf-8") as lines:
        found = read_log(lines)
    if found.without_body:
        report(f"warning: {found.without_body} requests are not sent: the log has them without their bodies")
    base, _, model = endpoint.rpartition("/v2/models/")
    rows = f"{base}/v1/models/{model}:predict"
    schedule = np.array([request.second / speed for request in found.requests])
    return schedule, [replace(request.payload, url=rows if request.is_v1 else None) for request in found.requests]


def _inputs(endpoint: str, headers: dict[str, str], wait_s: float) -> list[Input]:
    """The model's inputs from its metadata endpoint, which may take `wait_s` until it answers."""
    begin = reported = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(endpoint, headers=headers), timeout=10.0) as answer:
                return [(spec["name"], DType(spec["datatype"]), spec["shape"]) for spec in json.load(answer)["inputs"]]
        except (OSError, ValueError, KeyError, TypeError, HTTPException) as error:
            now = time.monotonic()
            if now - begin >= wait_s:
                raise click.ClickException(
                    f"{endpoint} does not describe a model: {error}; is the session Ready?"
                ) from error
        if now - reported >= REPORT_EVERY_S:
            reported = now
            report(f"{now - begin:5.0f} s  {endpoint} does not answer yet; waiting up to {wait_s:.0f} s")
        time.sleep(RETRY_S)


def _random(inputs: list[Input], generator: np.random.Generator) -> list[Payload]:
    """Requests of one sample each: normal random numbers, small integers for integer tensors. Raises ValueError."""

    def tensor(datatype: DType, described: list[int]) -> np.ndarray[Any, Any]:
        if datatype is DType.BYTES:
            raise ValueError("the session takes BYTES, for which random numbers are no input; give --payload")
        dtype, shape = NUMPY_DTYPES[datatype], [1, *described[1:]]
        values = generator.integers(0, 100, shape) if dtype.kind in "iu" else generator.standard_normal(shape)
        return values.astype(dtype.newbyteorder("="))

    return [
        encode_request({name: tensor(datatype, shape) for name, datatype, shape in inputs})
        for _ in range(RANDOM_PAYLOADS)
    ]


def _from_file(path: Path) -> list[Payload]:
    """One request for each index of the tensors' first dimension."""
    with np.load(path) as tensors:
        named = {name: tensors[name] for name in tensors.files}
    lengths = {len(tensor) for tensor in named.values()}
    if len(lengths) != 1:
        raise ValueError(f"{path} needs at least one tensor, and all must have the same first dimension")
    return [encode_request({name: tensor[i : i + 1] for name, tensor in named.items()}) for i in range(lengths.pop())]


def _show_progress(seconds: float, progress: Progress) -> None:
    if round(progress.elapsed_s) % 5 == 0:
        left = max(0.0, seconds - progress.elapsed_s)
        counts = f"sent {progress.sent}, in time {progress.good}, waiting {progress.pending}"
        report(f"{progress.elapsed_s:5.0f} s  {counts}; {left:.0f} s left")


def _print(run: LoadRun, output: OutputFormat) -> None:
    for warning in run.report.warnings:
        report(f"warning: {warning}")
    emit(json.loads(run.report.to_json()), output, lambda console: console.print(report_table(run.report)))
