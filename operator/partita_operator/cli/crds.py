"""`partita crds`: writes the CRDs, or checks that the files in a directory are up to date."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from partita_api.crd_schema import KINDS, crd, crd_yaml
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.output import OutputFormat, emit, output_option, writing


@click.command()
@click.option(
    "--out",
    "directories",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    help="Directory to write <plural>.yaml files to; repeatable. Default: print YAML to stdout.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if a file in --out is missing or different.")
@output_option
def crds(directories: tuple[Path, ...], check: bool, output: OutputFormat) -> None:
    """Write the CustomResourceDefinitions, generated from the API models.

    Without --out, they are printed: as YAML documents, or as one List with --output json. With --out, the result is the
    state of each file.
    """
    if check and not directories:
        raise click.UsageError("--check needs --out with the directory to check")
    if not directories:
        documents = {"apiVersion": "v1", "kind": "List", "items": [crd(kind) for kind in KINDS]}
        text = "---\n".join(crd_yaml(kind) for kind in KINDS)
        emit(documents, output, lambda _console: click.echo(text, nl=False))
        return
    expected = {directory / f"{kind.plural}.yaml": crd_yaml(kind) for directory in directories for kind in KINDS}
    stale = [path for path, text in expected.items() if not _is_current(path, text)]
    if not check:
        for path in stale:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(expected[path])
    files = [{"file": str(path), "state": _state(path in stale, check)} for path in expected]
    emit(files, output, lambda _console: _print(stale, check))
    raise SystemExit(ExitCode.FAILED if check and stale else ExitCode.OK)


def _is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _state(is_stale: bool, check: bool) -> str:
    return "current" if not is_stale else "stale" if check else "written"


def _print(stale: Sequence[Path], check: bool) -> None:
    for path in stale:
        if check:
            command = shlex.join(["partita", "crds", "--out", str(path.parent)])
            click.echo(f"{path} is not up to date; run: {command}", err=True)
        else:
            click.echo(f"wrote {path}")
