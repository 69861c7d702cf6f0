"""Compares the classes that the session `traffic` serves with those of the same networks in this process."""

import sys
from pathlib import Path
from typing import Final

import click
import httpx

EXAMPLES: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from checks.client import NotAnsweredError  # noqa: E402
from checks.local_mode import NOT_COMPARED, serve  # noqa: E402

from traffic.comparison import LEAST_EQUAL, Comparison, plain_classes, served_classes  # noqa: E402
from traffic.photos import photographs  # noqa: E402


@click.command()
@click.option("--photographs", "count", default=20, show_default=True, help="How many are sent.")
@click.option("--url", help="URL of a session that serves, such as http://127.0.0.1:8000/default/traffic.")
def check(count: int, url: str | None) -> None:
    """Compare the classes of the crops that the session finds in photographs with those of its networks here.

    Without --url, local mode serves the session; the first time takes minutes. It keeps running for the next call.
    Exit code 1 if less than 95 % of all crops have the same class, 2 if nothing could be compared.
    """
    url = url or serve("traffic", "traffic")
    compared = []
    with httpx.Client() as client:
        for number, photograph in enumerate(photographs(count)):
            try:
                comparison = Comparison(served_classes(client, url, photograph), plain_classes(photograph))
            except NotAnsweredError as error:
                click.echo(f"photograph {number}: not compared: {error}", err=True)
                continue
            click.echo(f"photograph {number}: {comparison.equal} of {comparison.crops} crops have the same class")
            compared.append(comparison)
    if not compared:
        click.echo("no photograph could be compared", err=True)
        raise SystemExit(NOT_COMPARED)
    equal, crops = (sum(getattr(each, name) for each in compared) for name in ("equal", "crops"))
    click.echo(f"in total: {equal} of {crops} crops have the same class ({equal / max(1, crops):.1%})")
    if equal < LEAST_EQUAL * crops:
        raise SystemExit(1)


if __name__ == "__main__":
    check()
