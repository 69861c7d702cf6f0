"""Builds Kubernetes from Debian 12's source package, if only a Debian mirror can be reached.

Debian's package is Kubernetes 1.20.2, built with Debian's Go 1.19. Its vendored copy of `modern-go/reflect2` is too old
for this Go (the API server would crash on the first custom resource), so Debian's own package of it replaces that
directory. etcd comes from Debian's binary package; it is unpacked, since an installation would start a system service.

The system's package sources do not change: the build directory has its own sources and lists.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged

KUBERNETES_VERSION = "v1.20.2"
DEBIAN_VERSION = f"{KUBERNETES_VERSION}-debian.2"

_RELEASE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_BUILD_PACKAGES = (
    "dpkg-dev",
    "golang-1.19-go",
    "golang-github-modern-go-reflect2-dev",
    "jq",
    "make",
    "rsync",
)
_PROGRAMS = {
    "kube-apiserver": 140,
    "kube-controller-manager": 60,
    "kube-scheduler": 20,
    "kube-proxy": 15,
    "kubelet": 60,
}
"""What is compiled, in this order, and about how many seconds it takes on two free cores after those before it."""
_REFLECT2 = "github.com/modern-go/reflect2"
_VERSION_FILE = f"""\
KUBE_GIT_COMMIT=unknown
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION={KUBERNETES_VERSION}
KUBE_GIT_MAJOR=1
KUBE_GIT_MINOR=20
"""


def build_from_debian(cache: Path, report: Report) -> None:
    """Build, and put etcd and the Kubernetes programs into `cache/kubernetes/<DEBIAN_VERSION>`.

    It takes 5 to 8 minutes on two cores, and 3 GB of disk. An interrupted build continues where it was. The log is
    `cache/build/<DEBIAN_VERSION>.log`. Raises DevError if this is not Debian 12, if packages are missing and cannot be
    installed, or if the build fails.
    """
    _require_bookworm()
    build = cache / "build" / DEBIAN_VERSION
    build.mkdir(parents=True, exist_ok=True)
    log = build.parent / f"{DEBIAN_VERSION}.log"
    report(f"building in {build}, log in {log}")
    _install_build_packages(log, report)
    apt = _private_apt(build)
    run_logged(["apt-get", *apt, "update"], phase="reading Debian's package lists", log=log, report=report, usual_s=10)
    source = _unpack_source(build, apt, log, report)
    _compile(build, source, log, report)
    etcd = _unpack_etcd(build, apt, log, report)
    _store(cache, [etcd, *(source / "_output/bin" / program for program in _PROGRAMS)])
    shutil.rmtree(build)


def _require_bookworm() -> None:
    try:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME")
    except OSError:
        codename = None
    if codename != _RELEASE or shutil.which("apt-get") is None:
        raise DevError(f"this build needs Debian 12 ({_RELEASE}) and its Go 1.19; this system is {codename}")


def _install_build_packages(log: Path, report: Report) -> None:
    absent = [package for package in _BUILD_PACKAGES if not _is_installed(package)]
    if not absent:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *absent]
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if prefix and not _may_sudo():
        raise DevError(f"packages are missing; install them with: sudo {' '.join(install)}")
    prefix += ["env", "DEBIAN_FRONTEND=noninteractive"]
    run_logged([*prefix, "apt-get", "update"], phase="refreshing apt's lists", log=log, report=report, usual_s=10)
    phase = f"installing {', '.join(absent)}"
    run_logged([*prefix, *install], phase=phase, log=log, report=report, usual_s=60)


def _may_sudo() -> bool:
    if shutil.which("sudo") is None:
        return False
    return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


def _is_installed(package: str) -> bool:
    answer = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout == "installed"


def _private_apt(build: Path) -> list[str]:
    """Options that make apt-get read only Debian's own archive and keep its lists in `build`."""
    sources = build / "sources.list"
    origin = f"[signed-by={_KEYRING}] {_MIRROR} {_RELEASE} main"
    sources.write_text(f"deb {origin}\ndeb-src {origin}\n", encoding="utf-8")
    for directory in ("lists/partial", "archives/partial"):
        (build / directory).mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": build / "lists",
        "Dir::Cache": build,
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _unpack_source(build: Path, apt: list[str], log: Path, report: Report) -> Path:
    """The patched source tree. It is created in one step, so an existing one is complete."""
    source = build / "kubernetes"
    if source.exists():
        report("continuing with the source tree of an earlier build")
        return source
    run_logged(
        ["apt-get", *apt, "source", "--download-only", "kubernetes"],
        phase="downloading Debian's source package of Kubernetes",
        log=log,
        report=report,
        directory=build,
        usual_s=20,
    )
    (description,) = build.glob("kubernetes_*.dsc")
    draft = build / "kubernetes.unpacking"
    shutil.rmtree(draft, ignore_errors=True)
    run_logged(
        ["dpkg-source", "--no-check", "--extract", str(description), str(draft)],
        phase="unpacking it",
        log=log,
        report=report,
        usual_s=30,
    )
    vendored = draft / "vendor" / _REFLECT2
    shutil.rmtree(vendored)
    shutil.copytree(Path("/usr/share/gocode/src") / _REFLECT2, vendored)
    workspace = draft / ".go/src/k8s.io"
    workspace.mkdir(parents=True)
    (workspace / "kubernetes").symlink_to("../../..")
    (draft / "version").write_text(_VERSION_FILE, encoding="utf-8")
    draft.rename(source)
    return source


def _compile(build: Path, source: Path, log: Path, report: Report) -> None:
    home = build / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": f"/usr/lib/go-1.19/bin:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "GOPATH": str(source / ".go"),
        "GOCACHE": str(build / "gocache"),
        "CGO_ENABLED": "0",
        "GOLDFLAGS": "-s -w",
        "KUBE_GIT_VERSION_FILE": str(source / "version"),
    }
    for number, (program, usual_s) in enumerate(_PROGRAMS.items(), start=1):
        run_logged(
            ["make", f"WHAT=cmd/{program}"],
            phase=f"compiling {program} ({number} of {len(_PROGRAMS)})",
            log=log,
            report=report,
            environment=environment,
            directory=source,
            usual_s=usual_s,
        )


def _unpack_etcd(build: Path, apt: list[str], log: Path, report: Report) -> Path:
    run_logged(
        ["apt-get", *apt, "download", "etcd-server"],
        phase="downloading Debian's etcd",
        log=log,
        report=report,
        directory=build,
    )
    package = max(build.glob("etcd-server_*.deb"))
    run_logged(
        ["dpkg-deb", "--extract", str(package), str(build / "etcd")],
        phase="unpacking it",
        log=log,
        report=report,
    )
    return build / "etcd/usr/bin/etcd"


def _store(cache: Path, programs: list[Path]) -> None:
    destination = cache / "kubernetes" / DEBIAN_VERSION
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{DEBIAN_VERSION}-", dir=destination.parent))
    try:
        staging.chmod(0o755)
        for program in programs:
            shutil.copy2(program, staging)
        shutil.rmtree(destination, ignore_errors=True)
        staging.rename(destination)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
