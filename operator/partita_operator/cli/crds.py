"""`partita crds`: writes the CRDs, or checks that the files in a directory are up to date."""

import shlex
from pathlib import Path

import click

from partita_api.crd_schema import KINDS, crd_yaml
from partita_operator.cli.exit_codes import ExitCode


@click.command()
@click.option(
    "--out",
    "directories",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    help="Directory to write <plural>.yaml files to; repeatable. Default: print YAML to stdout.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if a file in --out is missing or different.")
def crds(directories: tuple[Path, ...], check: bool) -> None:
    """Write the CustomResourceDefinitions, generated from the API models."""
    if check and not directories:
        raise click.UsageError("--check needs --out with the directory to check")
    if not directories:
        click.echo("---\n".join(crd_yaml(kind) for kind in KINDS), nl=False)
        return
    expected = {directory / f"{kind.plural}.yaml": crd_yaml(kind) for directory in directories for kind in KINDS}
    stale = [path for path, text in expected.items() if not path.is_file() or path.read_text() != text]
    if check:
        for path in stale:
            click.echo(f"{path} is not up to date; run: partita crds --out {shlex.quote(str(path.parent))}", err=True)
        raise SystemExit(ExitCode.FAILED if stale else ExitCode.OK)
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(expected[path])
        click.echo(f"wrote {path}")
