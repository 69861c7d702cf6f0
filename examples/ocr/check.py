"""Compares the text that the session `ocr` serves with that of the package rapidocr, for any pictures."""

import sys
from pathlib import Path
from typing import Final

import click
import httpx

EXAMPLES: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from checks.client import NotAnsweredError  # noqa: E402
from checks.local_mode import NOT_COMPARED, serve  # noqa: E402

from ocr.comparison import Comparison, NotReadError, package_text, served_text  # noqa: E402

ALLOWED: Final = 0.01
"""The largest share of characters that may differ."""


@click.command()
@click.argument("pictures", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--url", help="URL of a session that serves, such as http://127.0.0.1:8000/default/ocr.")
def check(pictures: tuple[Path, ...], url: str | None) -> None:
    """Compare the text that the session serves with that of the package, for each of PICTURES.

    Without --url, local mode serves the session; the first time takes minutes. It keeps running for the next call.
    Pictures that cannot be read are reported and left out. Exit code 1 if more than 1 % of all characters differ, 2 if
    no picture could be compared.
    """
    url = url or serve("ocr", "ocr")
    compared = [comparison for path in pictures if (comparison := _compare(url, path)) is not None]
    if not compared:
        click.echo("no picture could be compared", err=True)
        raise SystemExit(NOT_COMPARED)
    different, characters = (sum(getattr(c, name) for c in compared) for name in ("different", "characters"))
    click.echo(f"in total: {_share(different, characters)}, in {len(compared)} of {len(pictures)} pictures")
    if different > ALLOWED * characters:
        raise SystemExit(1)


def _compare(url: str, path: Path) -> Comparison | None:
    """Print both texts of a picture; None if it could not be read."""
    from rapidocr import RapidOCR

    click.echo(f"{path}")
    try:
        with httpx.Client() as client:
            served = served_text(client, url, path.read_bytes())
        engine = RapidOCR(params={"Global.log_level": "critical"})
        comparison = Comparison(served.lines, package_text(engine, path))
    except (NotAnsweredError, NotReadError, OSError) as error:
        click.echo(f"  not compared: {error}", err=True)
        return None
    for name, lines in (("served", comparison.served), ("package", comparison.package)):
        for line in lines or ("(no text)",):
            click.echo(f"  {name:8} {line}")
    if served.left_out:
        click.echo(f"  {served.left_out} lines were found but not read: the session reads at most 256 of a picture")
    click.echo(f"  {_share(comparison.different, comparison.characters)}")
    return comparison


def _share(different: int, characters: int) -> str:
    return f"{different} of {characters} characters differ ({different / max(1, characters):.2%})"


if __name__ == "__main__":
    check()
