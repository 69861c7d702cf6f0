"""Builds every part of a release and publishes it."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.machine.commands import Report, run_logged
from partita_devtools.nodes.image import build_image, push_image
from partita_devtools.release.config import IMAGES, ReleaseConfig
from partita_devtools.release.contents import list_contents
from partita_devtools.release.programs import require_programs
from partita_devtools.release.signing import Signer
from partita_devtools.release.version import release_version


@dataclass(frozen=True)
class PublishedImage:
    """An image in the registry."""

    reference: str
    """With its digest."""
    contents: Path | None
    """The list of its contents, unless that is skipped."""


@dataclass(frozen=True)
class Published:
    """What a release has published."""

    version: str
    wheels: tuple[Path, ...]
    images: tuple[PublishedImage, ...]
    chart: Path
    skipped: tuple[str, ...]
    """Programs whose steps were left out."""


def publish(config: ReleaseConfig, tag: str | None, report: Report) -> Published:
    """Build wheels, images and the chart, and publish images and chart in the registry.

    `out` is emptied first. The wheels stay there, for an upload to PyPI. Images are signed by their digests. Raises
    DevError if versions differ from each other or from `tag`, if a program is missing, or if a step fails; the message
    has the end of its log.
    """
    version = release_version(config.source, tag)
    require_programs(config.programs)
    shutil.rmtree(config.out, ignore_errors=True)
    config.out.mkdir(parents=True)
    steps = _Steps(config, version, report)
    wheels = steps.wheels()
    images = tuple(steps.image(name) for name in config.images)
    return Published(version, wheels, images, steps.chart(), tuple(sorted(config.skipped)))


@dataclass(frozen=True)
class _Steps:
    config: ReleaseConfig
    version: str
    report: Report

    def wheels(self) -> tuple[Path, ...]:
        """Source and binary distributions of both packages, built by the hatchling of this environment."""
        wheels = self.config.out / "wheels"
        for project in (self.config.source, self.config.source / "devtools"):
            words = ["--no-isolation", "--outdir", str(wheels), str(project)]
            self._run([sys.executable, "-m", "build", *words], f"building the wheel of {project.name}")
        return tuple(sorted(wheels.iterdir()))

    def image(self, name: str) -> PublishedImage:
        """An image in the registry, signed, with the list of its contents."""
        config, archive = self.config, self.config.out / f"{name}.tar"
        place = f"{config.registry}/{name}"
        tag = f"{place}:{self.version}"
        arguments = {"EXTRAS": IMAGES[name]} | ({} if config.base is None else {"BASE": config.base})
        build_image(config.source, tag, archive, work_dir=config.image_cache, arguments=arguments, report=self.report)
        digest = push_image(tag, work_dir=config.image_cache, plain_http=config.plain_http, report=self.report)
        reference, contents = f"{place}@{digest}", None
        if "syft" not in config.skipped:
            contents = config.out / f"{name}.spdx.json"
            list_contents(archive, place, self.version, contents, log=self._log, report=self.report)
        archive.unlink()
        if "cosign" not in config.skipped:
            signer = Signer(config.key, config.plain_http, self._log, self.report)
            signer.sign(reference)
            if contents is not None:
                signer.attest(reference, contents)
        return PublishedImage(reference, contents)

    def chart(self) -> Path:
        """The chart's package, which is in the registry, too."""
        config, package = self.config, self.config.out / f"partita-{self.version}.tgz"
        chart = str(config.source / "charts" / "partita")
        self._run(["helm", "lint", "--strict", chart], "checking the chart")
        self._run(["helm", "package", chart, "--destination", str(config.out)], "packing the chart")
        plain = ["--plain-http"] if config.plain_http else []
        self._run(["helm", "push", str(package), f"oci://{config.registry}/charts", *plain], "publishing the chart")
        return package

    @property
    def _log(self) -> Path:
        return self.config.out / "release.log"

    def _run(self, argv: Sequence[str], phase: str) -> None:
        run_logged(argv, phase=phase, log=self._log, report=self.report)
