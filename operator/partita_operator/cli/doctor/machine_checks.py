"""Findings from the facts on this machine. Pure."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from math import floor
from typing import Final

from partita_operator.cli.doctor.findings import Area, CheckFinding, Level, Unknown
from partita_operator.cli.doctor.machine_facts import (
    CpuFacts,
    DiskFacts,
    MachineFacts,
    MemoryFacts,
    PortFacts,
    PythonFacts,
)
from partita_operator.cli.doctor.requirements import PackageSet

GIB: Final = 2**30
LEAST_CPUS: Final = 2
LEAST_MEMORY_GIB: Final = 7.5
"""Kubernetes, Ray and the operator together need about this much. A machine of 8 GB has a little less than 8 GiB."""
LEAST_AVAILABLE_GIB: Final = 2.0
LEAST_DISK_GIB: Final = 1.0
ENOUGH_DISK_GIB: Final = 5.0
"""A build of Kubernetes takes 3 GB; logs and models need the rest."""

PURPOSES: Final[Mapping[str, str]] = {
    "models": "profile and run models",
    "serving": "serve sessions with Ray Serve",
    "operator": "run the operator and use a cluster",
    "s3": "read models from S3",
    "oci": "read models from OCI registries",
    "tensorrt": "run models with TensorRT",
    "load": "send load with `partita load`",
    "tracing": "write traces",
    "onnx": "run models of .onnx files",
    "hugging-face": "run models of Hugging Face",
    "plots": "draw figures of simulations",
    "browser": "test the console in a browser",
}
"""What each extra is for, after "to"."""

InstallCommand = Callable[[str], str]
"""The shell command that installs an extra."""


def machine_findings(facts: MachineFacts, install_command: InstallCommand, reinstall: str) -> Iterator[CheckFinding]:
    """One finding for each check. `reinstall` is the shell command that installs Partita without extras."""
    yield _python(facts.python)
    yield _core(facts, reinstall)
    for extra in facts.extras:
        yield _extra(extra, install_command)
    yield _cpu(facts.cpu)
    yield _memory(facts.memory)
    yield _disk(facts.disk)
    yield _gpus(facts, install_command)
    for port in facts.ports:
        yield _port(port)


def _finding(check: str, level: Level, message: str, action: str = "", command: str = "") -> CheckFinding:
    return CheckFinding(Area.MACHINE, check, level, message, action, command)


def _python(facts: PythonFacts) -> CheckFinding:
    if facts.fits:
        return _finding("Python", Level.OK, f"Python {facts.version} runs Partita ({facts.executable}).")
    return _finding(
        "Python",
        Level.ERROR,
        f"Python {facts.version} is too old: Partita needs {facts.required}.",
        "Install a newer Python and make a new virtual environment with it.",
    )


def _core(facts: MachineFacts, reinstall: str) -> CheckFinding:
    name = f"partita {facts.partita}"
    if not facts.core.unfit:
        return _finding("packages", Level.OK, f"{name} has all packages that it needs: {_versions(facts.core)}.")
    return _finding(
        "packages",
        Level.ERROR,
        f"{name} needs other packages: {_mismatches(facts.core)}.",
        "Install the packages.",
        reinstall,
    )


def _extra(extra: PackageSet, install_command: InstallCommand) -> CheckFinding:
    check = f"extra {extra.extra}"
    purpose = PURPOSES.get(extra.extra, f"use {extra.extra}")
    if not extra.unfit:
        return _finding(check, Level.OK, f"Installed, to {purpose}: {_versions(extra)}.")
    install = install_command(extra.extra)
    if extra.is_absent:
        return _finding(check, Level.SKIPPED, "It is not installed.", f"Install it if you want to {purpose}.", install)
    missing = all(package.installed is None for package in extra.unfit)
    # An extra shares packages with others. If only a part of them is there, the extra was not requested: not an error.
    level = Level.SKIPPED if missing else Level.ERROR
    return _finding(
        check,
        level,
        f"It is {'not complete' if missing else 'too old or too new'}: {_mismatches(extra)}.",
        f"Install it if you want to {purpose}.",
        install,
    )


def _cpu(facts: CpuFacts) -> CheckFinding:
    load = "" if facts.load is None else f", with {facts.load:.1f} runnable processes in the last minute"
    amount = f"{facts.usable:g} of {facts.present} CPUs can be used{load}."
    if facts.usable < LEAST_CPUS:
        return _finding(
            "CPU",
            Level.WARNING,
            amount,
            f"Use at least {LEAST_CPUS} CPUs to run Kubernetes, Ray and the operator on this machine.",
        )
    if facts.load is not None and facts.load > facts.present:
        return _finding(
            "CPU",
            Level.WARNING,
            f"The CPUs are busy: {amount}",
            "Wait before you profile models or measure latencies; the results would be too slow.",
            "uptime",
        )
    return _finding("CPU", Level.OK, amount)


def _memory(facts: MemoryFacts | Unknown) -> CheckFinding:
    if isinstance(facts, Unknown):
        return _finding("memory", Level.SKIPPED, f"It cannot be read: {facts.reason}.")
    amount = f"{_gib(facts.available)} of {_gib(facts.total)} GiB memory are free."
    if facts.total < LEAST_MEMORY_GIB * GIB or facts.available < LEAST_AVAILABLE_GIB * GIB:
        return _finding(
            "memory",
            Level.WARNING,
            amount,
            "Stop other programs, or use a machine with 8 GB, to run Kubernetes, Ray and the operator here.",
            "ps aux | sort -rnk 6 | head",
        )
    return _finding("memory", Level.OK, amount)


def _disk(facts: DiskFacts | Unknown) -> CheckFinding:
    if isinstance(facts, Unknown):
        return _finding("disk", Level.SKIPPED, f"It cannot be read: {facts.reason}.")
    amount = f"{_gib(facts.free)} GiB are free in {facts.path}."
    if facts.free >= ENOUGH_DISK_GIB * GIB:
        return _finding("disk", Level.OK, amount)
    level = Level.ERROR if facts.free < LEAST_DISK_GIB * GIB else Level.WARNING
    return _finding("disk", level, amount, f"Free at least {ENOUGH_DISK_GIB:g} GiB.", "df -h .")


def _gpus(facts: MachineFacts, install_command: InstallCommand) -> CheckFinding:
    torch, gpus = facts.torch, facts.gpus
    seen = "" if isinstance(gpus, Unknown) else f"{len(gpus)} NVIDIA GPUs: {'; '.join(gpus)}"
    if torch is None:
        return _finding(
            "GPUs",
            Level.SKIPPED,
            f"PyTorch is not installed{f', and there are {seen}' if seen else ''}.",
            "Install it if you want to profile and run models.",
            install_command("models"),
        )
    if isinstance(gpus, Unknown) or not gpus:
        why = gpus.reason if isinstance(gpus, Unknown) else "nvidia-smi lists none"
        build = f"CUDA {torch.cuda}" if torch.cuda else "CPUs"
        # Without the driver nothing is wrong. With a driver that fails there is a GPU which cannot be used.
        fails = isinstance(gpus, Unknown) and "is not installed" not in gpus.reason
        return _finding(
            "GPUs",
            Level.WARNING if fails else Level.OK,
            f"torch {torch.version} for {build} runs models on the CPU: there is no usable NVIDIA GPU ({why}).",
            "Repair the NVIDIA driver if this machine has a GPU." if fails else "",
            "nvidia-smi" if fails else "",
        )
    if torch.cuda is None:
        release = torch.version.partition("+")[0]
        return _finding(
            "GPUs",
            Level.WARNING,
            f"torch {torch.version} is built for CPUs and does not use the {seen}.",
            "Install a torch for CUDA.",
            shlex.join([facts.python.executable, "-m", "pip", "install", "--force-reinstall", f"torch=={release}"]),
        )
    return _finding("GPUs", Level.OK, f"torch {torch.version} for CUDA {torch.cuda} can use {seen}.")


def _port(facts: PortFacts) -> CheckFinding:
    check = f"port {facts.port}"
    if not facts.in_use:
        return _finding(check, Level.OK, f"It is free for the operator ({facts.setting}).")
    return _finding(
        check,
        Level.WARNING,
        f"Another process uses it. It is the default of the operator's {facts.setting}.",
        f"Start the operator with another port, such as {facts.flag} {facts.port + 10000}.",
        f"partita operator settings {facts.flag} {facts.port + 10000}",
    )


def _versions(packages: PackageSet) -> str:
    return ", ".join(f"{package.name} {package.installed}" for package in packages.packages)


def _mismatches(packages: PackageSet) -> str:
    return ", ".join(
        f"{package.name}{package.required} ({package.installed or 'not installed'})" for package in packages.unfit
    )


def _gib(size: int) -> str:
    return f"{floor(size / GIB * 10) / 10:g}"
