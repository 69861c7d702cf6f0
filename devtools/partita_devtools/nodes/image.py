"""Builds an image from the project's Dockerfile without a registry, by Debian's buildah and debootstrap.

The build uses this machine's pip settings: indexes, directories of wheels and certificates.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged
from partita_devtools.nodes.debian_packages import IMAGE_PACKAGES, require_packages

_BASE = "localhost/partita-base:bookworm"
_MIRROR = "http://deb.debian.org/debian"
_STAGE = re.compile(r"^FROM\s.*\sAS\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_PACKAGES = "python3,python3-dev,python3-venv,ca-certificates"


def build_image(
    source: Path,
    tag: str,
    archive: Path,
    *,
    work_dir: Path,
    arguments: Mapping[str, str],
    report: Report,
    dockerfile: Path | None = None,
) -> None:
    """Build `source`'s Dockerfile (or another) and write the image `tag` as an archive for `NodeCluster.import_image`.

    `arguments` are the build's; BASE is a Debian 12 with Python unless given. `work_dir` keeps the base and the layers
    of the last build of each tag; the log is `image.log` there. Takes minutes. Raises DevError with the end of the log
    if it fails.
    """
    require_packages(IMAGE_PACKAGES if "BASE" not in arguments else {"buildah": IMAGE_PACKAGES["buildah"]})
    log = work_dir / "image.log"
    work_dir.mkdir(parents=True, exist_ok=True)
    buildah = _buildah(work_dir)
    if "BASE" not in arguments:
        _make_base(work_dir, buildah, log, report)
    arguments = {"BASE": _BASE, **arguments}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    recipe = (dockerfile or source / "Dockerfile").absolute()
    volumes = [word for volume in _pip_volumes(_pip_settings(), work_dir) for word in ("--volume", volume)]
    build = [*buildah, "bud", "--isolation", "chroot", "--layers", *words, *volumes, "--file", str(recipe)]
    run_logged(
        [*build, "--tag", tag, str(source)],
        phase=f"building {tag} (log: {log})",
        log=log,
        report=report,
        usual_s=240,
    )
    of_tag = sha256(tag.encode()).hexdigest()[:12]
    for stage in _STAGE.findall(recipe.read_text()):
        # Nothing is built. Only with a tag the stage's layers are there for the next build.
        argv = [*build, "--target", stage, "--tag", f"localhost/partita-stage-{stage}:{of_tag}", str(source)]
        run_logged(argv, phase=f"keeping the layers of stage {stage}", log=log, report=report)
    run_logged([*buildah, "rmi", "--prune"], phase="removing the layers of earlier builds", log=log, report=report)
    archive.unlink(missing_ok=True)
    run_logged(
        [*buildah, "push", tag, f"docker-archive:{archive}:{tag}"],
        phase=f"writing {archive}",
        log=log,
        report=report,
        usual_s=30,
    )


def push_image(tag: str, *, work_dir: Path, plain_http: bool, report: Report) -> str:
    """Push an image that `build_image` has built to the registry of its tag, and return its digest.

    Raises DevError with the end of the log if it fails.
    """
    digest = work_dir / "digest"
    words = [*_tls(plain_http), "--digestfile", str(digest), tag, f"docker://{tag}"]
    run_logged([*_buildah(work_dir), "push", *words], phase=f"pushing {tag}", log=work_dir / "image.log", report=report)
    return digest.read_text().strip()


def pull_image(reference: str, *, work_dir: Path, plain_http: bool, report: Report) -> None:
    """Pull an image from its registry. Raises DevError with the end of the log if it fails."""
    words = [*_tls(plain_http), f"docker://{reference}"]
    run_logged(
        [*_buildah(work_dir), "pull", *words], phase=f"pulling {reference}", log=work_dir / "image.log", report=report
    )


def _tls(plain_http: bool) -> list[str]:
    return [f"--tls-verify={str(not plain_http).lower()}"]


def _buildah(work_dir: Path) -> list[str]:
    storage = work_dir / "storage"
    return [
        "buildah",
        "--root",
        str(storage / "root"),
        "--runroot",
        str(storage / "run"),
        "--storage-driver",
        "overlay",
    ]


def _make_base(work_dir: Path, buildah: list[str], log: Path, report: Report) -> None:
    if (
        subprocess.run([*buildah, "inspect", "--type", "image", _BASE], capture_output=True, check=False).returncode
        == 0
    ):
        return
    system = work_dir / "base"
    shutil.rmtree(system, ignore_errors=True)
    run_logged(
        ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(system), _MIRROR],
        phase="making the base image, a Debian 12 with Python",
        log=log,
        report=report,
        usual_s=90,
    )
    done = subprocess.run([*buildah, "from", "scratch"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevError(f"buildah cannot start an image: {done.stderr.strip()}")
    container = done.stdout.strip()
    for argv in (["add", container, str(system), "/"], ["commit", "--rm", container, _BASE]):
        run_logged([*buildah, *argv], phase="packing it", log=log, report=report)
    shutil.rmtree(system)


def _pip_settings() -> dict[str, str]:
    """pip's settings on this machine by name; the environment overrides files."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    settings: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return settings


def _pip_volumes(settings: Mapping[str, str], work_dir: Path) -> list[str]:
    """Values of `--volume`: the settings as a file, and the files and directories that they name."""
    file = work_dir / "pip.conf"
    file.write_text(
        "".join(["[global]\n", *(f"{name} = {value}\n" for name, value in settings.items())]), encoding="utf-8"
    )
    words = [word.removeprefix("file://") for value in settings.values() for word in value.split()]
    paths = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    # The packages of an index lie beside it; a certificate is often a link to one in its directory.
    whole = {path.parent if path.name == "simple" or path.is_file() else path for path in paths}
    mounted = sorted(path for path in whole if not any(parent in whole for parent in path.parents))
    return [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in mounted)]
