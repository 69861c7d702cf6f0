"""Compares where the session `speech` finds speech with where the package silero-vad does, for any recordings."""

import sys
from functools import partial
from pathlib import Path
from typing import Final

import click
import httpx

EXAMPLES: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from checks.client import NotAnsweredError, ask  # noqa: E402
from checks.local_mode import NOT_COMPARED, serve  # noqa: E402

from speech.audio import RATE, AudioError, Samples, read_wav, recording  # noqa: E402
from speech.comparison import Comparison, package_result, served_result  # noqa: E402


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--url", help="URL of a session that serves, such as http://127.0.0.1:8000/default/speech.")
def check(files: tuple[Path, ...], url: str | None) -> None:
    """Compare what the session finds in each of FILES: WAV files of 16 kHz, one channel and 16 bits.

    By default this is the recording of `audio.py`. Without --url, local mode serves the session; the first time takes
    minutes. It keeps running for the next call. Files that cannot be read are reported and left out. Exit code 1 if
    speech starts or ends at another sample, or a probability differs by more than 0.001; 2 if nothing was compared.
    """
    url = url or serve("speech", "speech")
    compared = [_compare(url, path) for path in files or (None,)]
    results = [comparison for comparison in compared if comparison is not None]
    if not results:
        click.echo("no recording could be compared", err=True)
        raise SystemExit(NOT_COMPARED)
    equal = sum(comparison.is_equal for comparison in results)
    click.echo(f"in total: {equal} of {len(results)} results are equal; {len(compared) - len(results)} were left out")
    if equal < len(results):
        raise SystemExit(1)


def _compare(url: str, path: Path | None) -> Comparison | None:
    """Print what is found in a file, by default the recording of `audio.py`; None if it could not be compared."""
    click.echo(path or "the recording of audio.py")
    try:
        samples = recording() if path is None else _read(path)
        with httpx.Client() as client:
            comparison = Comparison(served_result(partial(ask, client, url), samples), package_result(samples))
    except (NotAnsweredError, AudioError, OSError) as error:
        click.echo(f"  not compared: {error}", err=True)
        return None
    for name, found in (("served", comparison.served), ("package", comparison.package)):
        segments = ", ".join(f"{start / RATE:.2f}-{end / RATE:.2f}" for start, end in found.segments)
        changes = ", ".join(f"{change} {sample / RATE:.2f}" for change, sample in found.changes)
        click.echo(f"  {name:8} speech at {segments or 'no time'} s; in the stream: {changes or 'none'}")
    equal = "equal" if comparison.is_equal else "different"
    click.echo(f"  {equal}; probabilities differ by at most {comparison.difference:.6f}")
    return comparison


def _read(path: Path) -> Samples:
    samples = read_wav(path)
    if not len(samples):
        raise AudioError(f"{path} has no sound")
    return samples


if __name__ == "__main__":
    check()
