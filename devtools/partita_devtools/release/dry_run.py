"""A release into a registry on this machine, read back as its users would."""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged
from partita_devtools.machine.ports import free_ports
from partita_devtools.nodes.debian_packages import require_packages
from partita_devtools.nodes.image import pull_image
from partita_devtools.release.config import ReleaseConfig
from partita_devtools.release.programs import OPTIONAL_PROGRAMS, missing_programs
from partita_devtools.release.publish import Published, publish

_START_S = 30.0


def dry_run(config: ReleaseConfig, report: Report) -> Published:
    """Publish into a local registry, and read everything back: wheels, images by digest, signatures, the chart.

    `registry`, `plain_http`, `key` and `skipped` of the config are replaced. Steps of missing OPTIONAL_PROGRAMS are
    left out. Raises DevError like `publish`, and if something cannot be read back.
    """
    skipped = missing_programs() & OPTIONAL_PROGRAMS
    work = config.out.with_name(f"{config.out.name}-registry")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ["COSIGN_PASSWORD"] = ""  # of the key that only this run uses
    with _registry(work, report) as host:
        key = None if "cosign" in skipped else _new_key(work, report)
        local = replace(config, registry=f"{host}/partita", plain_http=True, key=key, skipped=skipped)
        published = publish(local, None, report)
        _read_back(local, published, work, report)
    shutil.rmtree(work)
    return published


@contextmanager
def _registry(work: Path, report: Report) -> Iterator[str]:
    """Host and port of a registry, by Debian's docker-registry."""
    require_packages({"docker-registry": "docker-registry"})
    (port,) = free_ports(1)
    settings = work / "registry.yml"
    settings.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {work / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with (
        (work / "registry.log").open("w") as log,
        subprocess.Popen(["docker-registry", "serve", str(settings)], stdout=log, stderr=log) as process,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/v2/", process, work / "registry.log")
            report(f"registry at 127.0.0.1:{port}")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5.0):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise DevError(f"the registry does not start: {error}; its log is {log}") from error
        time.sleep(0.1)


def _new_key(work: Path, report: Report) -> Path:
    prefix = work / "cosign"
    run_logged(
        ["cosign", "generate-key-pair", "--output-key-prefix", str(prefix)],
        phase="making a key",
        log=work / "key.log",
        report=report,
    )
    return prefix.with_suffix(".key")


def _read_back(config: ReleaseConfig, published: Published, work: Path, report: Report) -> None:
    def run(argv: list[str], phase: str) -> None:
        run_logged(argv, phase=phase, log=work / "read.log", report=report)

    environment = work / "venv"
    run([sys.executable, "-m", "venv", str(environment)], "making a virtual environment")
    (wheel,) = (found for found in published.wheels if found.match("partita-*.whl"))
    run([str(environment / "bin/pip"), "install", "--quiet", str(wheel)], "installing the wheel")
    run([str(environment / "bin/partita"), "crds", "--help"], "running the installed command")
    for reference in published.images:
        pull_image(reference, work_dir=config.image_cache, plain_http=True, report=report)
        if "cosign" not in config.skipped:
            public = str(work / "cosign.pub")
            options = ["--key", public, "--insecure-ignore-tlog", "--allow-http-registry"]
            run(["cosign", "verify", *options, reference], "verifying the signature")
            if "syft" not in config.skipped:
                contents = ["verify-attestation", "--type", "spdxjson"]
                run(["cosign", *contents, *options, reference], "verifying the signed list of contents")
    chart = f"oci://{config.registry}/charts/partita"
    run(
        ["helm", "pull", chart, "--version", published.version, "--plain-http", "--destination", str(work)],
        "reading the chart",
    )
