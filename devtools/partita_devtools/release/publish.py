"""Builds every part of a release and publishes it."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.machine.commands import Report, run_logged
from partita_devtools.nodes.image import build_image, push_image
from partita_devtools.release.config import IMAGES, ReleaseConfig
from partita_devtools.release.programs import require_programs
from partita_devtools.release.version import release_version


@dataclass(frozen=True)
class Published:
    """What a release has published."""

    version: str
    wheels: tuple[Path, ...]
    images: tuple[str, ...]
    """References with digests."""
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
    require_programs(config.skipped)
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
        """Source and binary distributions of both packages."""
        wheels = self.config.out / "wheels"
        for project in (self.config.source, self.config.source / "devtools"):
            words = ["--outdir", str(wheels), str(project)]
            self._run([sys.executable, "-m", "build", *words], f"building the wheel of {project.name}")
        return tuple(sorted(wheels.iterdir()))

    def image(self, name: str) -> str:
        """An image in the registry, signed, with the list of its contents; its reference with the digest."""
        config, archive = self.config, self.config.out / f"{name}.tar"
        tag = f"{config.registry}/{name}:{self.version}"
        arguments = {"EXTRAS": IMAGES[name]} | ({} if config.base is None else {"BASE": config.base})
        build_image(config.source, tag, archive, work_dir=config.image_cache, arguments=arguments, report=self.report)
        digest = push_image(tag, work_dir=config.image_cache, plain_http=config.plain_http, report=self.report)
        reference = f"{config.registry}/{name}@{digest}"
        contents = config.out / f"{name}.spdx.json"
        if "syft" not in config.skipped:
            self._run(
                ["syft", "scan", f"docker-archive:{archive}", "--output", f"spdx-json={contents}"],
                f"listing the contents of {name}",
            )
        archive.unlink()
        if "cosign" not in config.skipped:
            self._cosign("sign", reference)
            if contents.exists():
                self._cosign("attest", "--type", "spdxjson", "--predicate", str(contents), reference)
        return reference

    def chart(self) -> Path:
        """The chart's package, which is in the registry, too."""
        config, package = self.config, self.config.out / f"partita-{self.version}.tgz"
        chart = str(config.source / "charts" / "partita")
        self._run(["helm", "lint", "--strict", chart], "checking the chart")
        self._run(["helm", "package", chart, "--destination", str(config.out)], "packing the chart")
        plain = ["--plain-http"] if config.plain_http else []
        self._run(["helm", "push", str(package), f"oci://{config.registry}/charts", *plain], "publishing the chart")
        return package

    def _cosign(self, command: str, *words: str) -> None:
        """Without a key, cosign asks the workflow's identity provider; with one, nothing leaves this machine."""
        key = [] if self.config.key is None else ["--key", str(self.config.key), "--tlog-upload=false"]
        plain = ["--allow-http-registry"] if self.config.plain_http else []
        self._run(["cosign", command, "--yes", *key, *plain, *words], f"cosign {command}")

    def _run(self, argv: Sequence[str], phase: str) -> None:
        run_logged(argv, phase=phase, log=self.config.out / "release.log", report=self.report)
