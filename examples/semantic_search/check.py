"""Compares what the session `semantic-search` finds with what its model finds in transformers, for any texts."""

import sys
from pathlib import Path
from typing import Final

import click
import httpx

EXAMPLES: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from checks.client import NotAnsweredError  # noqa: E402
from checks.local_mode import NOT_COMPARED, serve  # noqa: E402

from semantic_search.comparison import (  # noqa: E402
    Comparison,
    passages,
    reference_result,
    served_result,
)
from semantic_search.questions import QUESTIONS  # noqa: E402

SHOWN: Final = 70
"""Characters of a text that are printed."""


@click.command()
@click.argument("texts", nargs=-1)
@click.option("--url", help="URL of a session that serves, such as http://127.0.0.1:8000/default/semantic-search.")
def check(texts: tuple[str, ...], url: str | None) -> None:
    """Compare what the session finds for each of TEXTS, by default the questions of `questions.py`.

    A text @FILE is read from a file. Without --url, local mode serves the session; the first time takes minutes. It
    keeps running for the next call. Texts that are refused are reported and left out. Exit code 1 if passages or their
    order differ, or the cosine of the vectors is not above 0.999; 2 if no text could be compared.
    """
    texts = texts or tuple(QUESTIONS)
    url = url or serve("semantic_search", "semantic-search")
    with httpx.Client() as client:
        compared = [comparison for text in texts if (comparison := _compare(client, url, text)) is not None]
    if not compared:
        click.echo("no text could be compared", err=True)
        raise SystemExit(NOT_COMPARED)
    equal = sum(comparison.is_equal for comparison in compared)
    least = min(comparison.cosine for comparison in compared)
    click.echo(
        f"in total: {equal} of {len(compared)} results are equal, the least cosine is {least:.6f}; "
        f"{len(texts) - len(compared)} texts were left out"
    )
    if equal < len(compared):
        raise SystemExit(1)


def _compare(client: httpx.Client, url: str, text: str) -> Comparison | None:
    """Print both results for a text; None if it could not be searched for."""
    click.echo(_short(text))
    try:
        content = Path(text[1:]).read_text() if text.startswith("@") else text
        served = served_result(client, url, content)
    except (NotAnsweredError, OSError, UnicodeDecodeError) as error:
        click.echo(f"  not compared: {error}", err=True)
        return None
    comparison = Comparison(served, reference_result(content, len(served.numbers)))
    for number, score in list(zip(served.numbers, served.scores, strict=True))[:3]:
        click.echo(f"  {score:.3f} {_short(passages()[number])}")
    if not comparison.is_equal:
        click.echo(f"  served {[*served.numbers]}, transformers {[*comparison.reference.numbers]}")
        click.echo(f"  cosine of the vectors: {comparison.cosine:.6f}")
    return comparison


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


if __name__ == "__main__":
    check()
