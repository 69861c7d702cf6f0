"""`partita dev release`: builds and publishes a release."""

from pathlib import Path

import click
from pydantic import TypeAdapter
from rich.console import Console

from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.release.config import IMAGES, ReleaseConfig
from partita_devtools.release.dry_run import dry_run
from partita_devtools.release.programs import OPTIONAL_PROGRAMS
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
@click.option("--base", help="Base of the images, such as IMAGE@sha256:DIGEST. Default: built here.")
@click.option(
    "--skip",
    "skipped",
    type=click.Choice(OPTIONAL_PROGRAMS),
    multiple=True,
    help="Leave out the steps of this program in a dry run; repeatable.",
)
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
    skipped: tuple[str, ...],
    output: OutputFormat,
) -> None:
    """Build wheels, images and the chart; sign images; publish images and the chart in a registry.

    The wheels stay in the folder --out, for an upload to PyPI. Needs buildah, helm, syft and cosign.
    """
    if is_dry_run == (registry is not None):
        raise BadInput("give --registry HOST/PATH to publish a release, or --dry-run")
    if skipped and not is_dry_run:
        raise BadInput("a release that others use needs every step; leave out --skip, or give --dry-run")
    config = ReleaseConfig(
        source=source.absolute(),
        out=out.absolute(),
        registry=registry or "",
        images=images or tuple(IMAGES),
        base=base,
        skipped=frozenset(skipped),
    )
    published = dry_run(config, report) if is_dry_run else publish(config, tag, report)
    facts = TypeAdapter(Published).dump_python(published, mode="json")
    emit(facts, output, lambda console: _print(published, console))


def _print(published: Published, console: Console) -> None:
    contents = (image.contents for image in published.images if image.contents is not None)
    references = (image.reference for image in published.images)
    for made in (*published.wheels, *contents, published.chart, *references):
        console.print(str(made), markup=False, soft_wrap=True)
    if published.skipped:
        console.print(f"without the steps of: {', '.join(published.skipped)}")
