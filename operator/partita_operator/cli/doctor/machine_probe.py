"""Reads the facts on this machine. It never imports torch or Ray, and every external command has a time limit."""

import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from platform import python_version
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.machine_facts import (
    CpuFacts,
    DiskFacts,
    MachineFacts,
    MemoryFacts,
    PortFacts,
    PythonFacts,
    TorchFacts,
)
from partita_operator.cli.doctor.requirements import package_set
from partita_operator.settings.model import OperatorSettings
from partita_runtime.installation import PACKAGE

COMMAND_SECONDS: Final = 10.0
"""Time limit of an external command."""
DEVELOPMENT_EXTRAS: Final = frozenset({"dev", "docs"})
"""The extras with tools for developers of Partita; they are not checked."""
_KIB: Final = 1024
_NO_LIMIT: Final = 2**60
"""More bytes than any machine has."""
_FILES: Final = ("active_file", "inactive_file")
"""What a control group's statistics call the files in memory."""


def machine_facts(directory: Path) -> MachineFacts:
    """The facts on this machine; free disk space is that of `directory`."""
    metadata = distribution(PACKAGE)
    lines = metadata.requires or []
    extras = sorted(set(metadata.metadata.get_all("Provides-Extra") or ()) - DEVELOPMENT_EXTRAS)
    return MachineFacts(
        partita=metadata.version,
        python=_python(metadata),
        core=package_set(PACKAGE, "", lines, installed_version),
        extras=tuple(package_set(PACKAGE, extra, lines, installed_version) for extra in extras),
        cpu=_cpu(),
        memory=memory_facts(),
        disk=_disk(directory),
        torch=_torch(),
        gpus=_gpus(),
        ports=_ports(OperatorSettings()),
    )


def installed_version(name: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def command_output(*command: str) -> str | Unknown:
    """What a command prints. Unknown if it is not installed, fails or takes longer than COMMAND_SECONDS."""
    program = shutil.which(command[0])
    if program is None:
        return Unknown(f"{command[0]} is not installed")
    try:
        answer = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Unknown(f"{command[0]} takes longer than {COMMAND_SECONDS:.0f} s")
    except OSError as error:
        return Unknown(f"{command[0]} cannot run: {error}")
    if answer.returncode != 0:
        problem = (answer.stderr or answer.stdout).strip().splitlines()
        return Unknown(f"{command[0]} fails: {problem[0] if problem else f'exit code {answer.returncode}'}")
    return answer.stdout


def _python(metadata: Distribution) -> PythonFacts:
    required = next(iter(metadata.metadata.get_all("Requires-Python") or ()), "")
    try:
        fits = SpecifierSet(required).contains(python_version(), prereleases=True)
    except InvalidSpecifier:
        fits = True
    return PythonFacts(python_version(), required, fits, sys.executable)


def _cpu() -> CpuFacts:
    present = os.cpu_count() or 1
    usable = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(present)
    quota = _words(Path("/sys/fs/cgroup/cpu.max"))
    if len(quota) == 2 and quota[0].isdigit():
        usable = min(usable, int(quota[0]) / int(quota[1]))
    try:
        load = os.getloadavg()[0]
    except (OSError, AttributeError):
        load = None
    return CpuFacts(usable, present, load)


def memory_facts(
    meminfo: Path = Path("/proc/meminfo"), control_groups: Path = Path("/sys/fs/cgroup")
) -> MemoryFacts | Unknown:
    """The memory of this machine, or of the container."""
    try:
        text = meminfo.read_text()
    except OSError:
        return Unknown("this system has no /proc/meminfo")
    sizes = {name: int(size) * _KIB for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    if not {"MemTotal", "MemAvailable"} <= sizes.keys():
        return Unknown("/proc/meminfo does not say it")
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    limit, used = _limit_and_use(control_groups)
    if limit < total:
        total, available = limit, min(available, max(limit - used, 0))
    return MemoryFacts(total, available)


def _limit_and_use(control_groups: Path) -> tuple[int, int]:
    """The bytes that this container may use, and those it uses without files in memory, which make way for others."""
    for folder, limit_file, used_file, prefix in (
        (control_groups, "memory.max", "memory.current", ""),
        (control_groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        limit, used = _number(folder / limit_file), _number(folder / used_file)
        if limit is not None and used is not None:
            files = (_number_after(f"{prefix}{name}", folder / "memory.stat") for name in _FILES)
            return limit, used - sum(files)
    return _NO_LIMIT, 0


def _disk(directory: Path) -> DiskFacts | Unknown:
    try:
        return DiskFacts(directory.absolute(), shutil.disk_usage(directory).free)
    except OSError as error:
        return Unknown(f"{directory} cannot be read: {error.strerror}")


def _torch() -> TorchFacts | None:
    """From the text of torch/version.py, because the version of a package from PyPI does not say its CUDA version."""
    try:
        installed = distribution("torch")
    except PackageNotFoundError:
        return None
    try:
        text = Path(str(installed.locate_file("torch/version.py"))).read_text()
    except OSError:
        text = ""
    cuda = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return TorchFacts(installed.version, cuda[1] if cuda else None)


def _gpus() -> tuple[str, ...] | Unknown:
    output = command_output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return output if isinstance(output, Unknown) else tuple(line.strip() for line in output.splitlines() if line)


def _ports(settings: OperatorSettings) -> tuple[PortFacts, ...]:
    ports = (
        ("health.port", "--health-port", settings.health.port),
        ("metrics.port", "--metrics-port", settings.metrics.port),
    )
    return tuple(PortFacts(name, flag, port, _in_use(port)) for name, flag, port in ports)


def _in_use(port: int) -> bool:
    """Whether a process of this machine listens on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return True
    return False


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdigit() else None


def _number_after(name: str, file: Path) -> int:
    """The number behind a name; 0 if there is none."""
    words = _words(file)
    return int(words[words.index(name) + 1]) if name in words else 0
