"""Reads a release in a local registry back, as its users do."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partita_devtools.control_plane.releases import OLDEST_KUBERNETES
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged
from partita_devtools.nodes.image import pull_image
from partita_devtools.release.config import ReleaseConfig
from partita_devtools.release.contents import require_package
from partita_devtools.release.publish import Published
from partita_devtools.release.signing import verify_contents, verify_signature


def read_back(config: ReleaseConfig, published: Published, work: Path, report: Report) -> None:
    """Install and run the wheels, pull and verify the images, pull and render the chart. Files go to the folder `work`.

    Raises DevError if something of it fails or differs from what was published.
    """
    reader = _Reader(config, published, work, report)
    reader.wheels()
    for image in published.images:
        reader.image(image.reference, image.contents)
    reader.chart()


@dataclass(frozen=True)
class _Reader:
    config: ReleaseConfig
    published: Published
    work: Path
    report: Report

    def wheels(self) -> None:
        """The operator's wheel with its dependencies; then both wheels, with the dependencies of this environment."""
        operator, devtools = (
            next(str(found) for found in self.published.wheels if found.match(f"{name}-*.whl"))
            for name in ("partita", "partita_devtools")
        )
        environment, folder = self.work / "venv", self.work / "installed"
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._run([sys.executable, "-m", "venv", str(environment)], "making a virtual environment")
        pip = [str(environment / "bin/pip"), "install", "--quiet"]
        self._run([*pip, operator], "installing the wheel", alone)
        self._run([str(environment / "bin/partita"), "crds", "--help"], "running the installed command", alone)
        self._run([*pip, "--no-deps", "--target", str(folder), operator, devtools], "installing both wheels", alone)
        script = [sys.executable, str(folder / "bin/partita")]
        self._run([*script, "demo", "--help"], "running the installed tools", {**alone, "PYTHONPATH": str(folder)})

    def image(self, reference: str, contents: Path | None) -> None:
        """An image by its digest, its signature and its contents."""
        pull_image(reference, work_dir=self.config.image_cache, plain_http=True, report=self.report)
        if contents is not None:
            self.report("checking the list of contents")
            require_package(contents, "partita", self.published.version)
        if self.config.key is not None:
            self.report("verifying the signature")
            verify_signature(reference, self.config.key)
            if contents is not None:
                self.report("verifying the signed list of contents")
                verify_contents(reference, self.config.key, contents)

    def chart(self) -> None:
        """The chart as it was packed, which renders with its default values."""
        chart = f"oci://{self.config.registry}/charts/partita"
        words = ["--version", self.published.version, "--plain-http", "--destination", str(self.work)]
        self._run(["helm", "pull", chart, *words], "pulling the chart")
        pulled = self.work / self.published.chart.name
        if pulled.read_bytes() != self.published.chart.read_bytes():
            raise DevError(f"the chart in the registry, {pulled}, is not {self.published.chart}")
        words = ["--kube-version", OLDEST_KUBERNETES]
        self._run(["helm", "template", "partita", str(pulled), *words], "rendering the chart")

    def _run(self, argv: list[str], phase: str, environment: Mapping[str, str] | None = None) -> None:
        run_logged(argv, phase=phase, log=self.work / "read.log", report=self.report, environment=environment)
