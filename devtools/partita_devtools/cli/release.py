"""`partita dev release`: builds and publishes a release."""

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.release.config import IMAGES, ReleaseConfig
from partita_devtools.release.dry_run import dry_run
from partita_devtools.release.publish import Published, publish
from partita_operator.cli.errors import BadInput
from partita_operator.cli.output import OutputFormat, emit, output_option, report


@click.command()
@click.option("--registry", help="Host and path of the registry, such as ghcr.io/partita. Log in to it first.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Use a registry on this machine, and read everything back.")
@click.option("--tag", help="Tag of the release, such as v0.1.0. It must be that of the packages and the chart.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the repository. Default: the current one.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist"),
    show_default=True,
    help="Folder for wheels, the chart and the images' contents. It is emptied first.",
)
@click.option("--image", "images", type=click.Choice(list(IMAGES)), multiple=True, help="Only this image; repeatable.")
@click.option("--base", help="Base of the images, such as docker.io/library/python:3.12-slim. Default: built here.")
@output_option
@dev_errors_as_failure
def release(
    registry: str | None,
    is_dry_run: bool,
    tag: str | None,
    source: Path,
    out: Path,
    images: tuple[str, ...],
    base: str | None,
    output: OutputFormat,
) -> None:
    """Build wheels, images and the chart; sign images; publish images and the chart in a registry.

    The wheels stay in the folder --out, for an upload to PyPI. Needs buildah, helm, syft and cosign.
    """
    if is_dry_run == (registry is not None):
        raise BadInput("give --registry HOST/PATH to publish a release, or --dry-run")
    config = ReleaseConfig(
        source=source.absolute(), out=out.absolute(), registry=registry or "", images=images or tuple(IMAGES), base=base
    )
    published = dry_run(config, report) if is_dry_run else publish(config, tag, report)
    emit(_facts(published), output, lambda console: _print(published, console))


def _facts(published: Published) -> dict[str, object]:
    return {key: _plain(value) for key, value in asdict(published).items()}


def _plain(value: object) -> object:
    return [str(item) for item in value] if isinstance(value, tuple) else str(value)


def _print(published: Published, console: Console) -> None:
    for made in (*published.wheels, *published.images, published.chart):
        console.print(str(made), markup=False, soft_wrap=True)
    if published.skipped:
        console.print(f"skipped, because they are not on PATH: {', '.join(published.skipped)}")
