"""`partita quality`: a session's answers to samples, compared with the answers that are expected."""

import asyncio
from math import isfinite
from pathlib import Path
from typing import Any

import click
import httpx
from rich.table import Table

from partita_api.quality import QualityMetric
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.option_types import SECONDS, Number
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_runtime.quality.asking import NotAskedError, ask_samples
from partita_runtime.quality.check import Measure, QualityScore, SampleResult
from partita_runtime.quality.samples import Sample, SamplesError, parse_samples
from partita_runtime.serving.protocol.inference_client import client_headers, model_url

_LARGEST = 1e15


@click.command()
@click.argument("url")
@click.option(
    "--samples",
    "samples_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="File with one JSON object in each line: `inputs` as in a request, and the expected `outputs` as in an "
    "answer of the Open Inference Protocol.",
)
@click.option("--metric", type=click.Choice([str(m) for m in QualityMetric]), required=True, help="How to compare.")
@click.option(
    "--limit",
    type=Number(0, _LARGEST),
    required=True,
    help="What the score of Top1, ExactText and Recall must reach; what that of the others must not exceed.",
)
@click.option("--tensor", help="The output that is compared. Default: the first one that each sample expects.")
@click.option(
    "--k",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many elements of a row count for Recall.",
)
@click.option("--worst", type=click.IntRange(0, 1000), default=5, show_default=True, help="Worst samples to list.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=30.0, help="Seconds until a request is cancelled.")
@click.option(
    "--credentials",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the API key or token of a client, if the session authenticates its clients.",
)
@output_option
def quality(
    url: str,
    samples_file: Path,
    metric: str,
    limit: float,
    tensor: str | None,
    k: int,
    worst: int,
    timeout_s: float,
    credentials: Path | None,
    output: OutputFormat,
) -> None:
    """Check the answers of the session at URL, such as http://127.0.0.1:8000/default/traffic.

    Exit code 4 if the score misses --limit, or if a sample has no usable answer.
    """
    try:
        samples = parse_samples(samples_file.read_text())
        endpoint = f"{model_url(url)}/infer"
        headers = client_headers(credentials.read_text(errors="replace")) if credentials is not None else {}
    except (SamplesError, ValueError) as error:
        raise BadInput(f"{samples_file}: {error}" if isinstance(error, SamplesError) else str(error)) from error
    measure = Measure(QualityMetric(metric), limit, tensor, k)
    try:
        score = asyncio.run(_score(endpoint, headers, samples, measure, timeout_s))
    except NotAskedError as error:
        raise click.ClickException(f"{endpoint} cannot be asked: {error}; is the session Ready?") from error
    listed = score.worst(worst)
    emit(_document(score, listed), output, lambda console: console.print(_table(score, listed)))
    if not score.met:
        raise SystemExit(ExitCode.MISSED)


async def _score(
    endpoint: str, headers: dict[str, str], samples: tuple[Sample, ...], measure: Measure, timeout_s: float
) -> QualityScore:
    async with httpx.AsyncClient(timeout=timeout_s, headers={**headers, "Content-Type": "application/json"}) as client:

        async def send(body: bytes) -> tuple[int, bytes]:
            try:
                answer = await client.post(endpoint, content=body)
            except httpx.HTTPError as error:
                raise NotAskedError(str(error) or type(error).__name__) from error
            return answer.status_code, answer.content

        return await ask_samples(samples, measure, send)


def _document(score: QualityScore, worst: tuple[tuple[int, SampleResult], ...]) -> dict[str, Any]:
    return {
        "metric": str(score.measure.metric),
        "score": score.value,
        "limit": score.measure.limit,
        "met": score.met,
        "samples": len(score.results),
        "worst": [{"sample": number, "score": _finite(found), "problem": found.problem} for number, found in worst],
    }


def _finite(found: SampleResult) -> float | None:
    """The score as JSON has it."""
    return found.score.value if found.score is not None and isfinite(found.score.value) else None


def _table(score: QualityScore, worst: tuple[tuple[int, SampleResult], ...]) -> Table:
    table = Table(title="Quality", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row(str(score.measure.metric), "none" if score.value is None else f"{score.value:.6g}")
    bound = "at least" if score.measure.metric.is_share else "at most"
    table.add_row("Limit", f"{bound} {score.measure.limit:g}: {'met' if score.met else 'missed'}")
    table.add_row("Samples", str(len(score.results)))
    for number, found in worst:
        table.add_row(f"Sample {number}", f"{found.score.value:.6g}" if found.score else found.problem)
    return table
