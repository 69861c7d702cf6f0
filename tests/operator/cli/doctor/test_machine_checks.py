"""Findings on the machine, from facts."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.operator.cli.doctor.pasted_commands import check_commands

from partita_operator.cli.doctor.findings import CheckFinding, Level, Unknown
from partita_operator.cli.doctor.machine_checks import GIB, PURPOSES, machine_findings
from partita_operator.cli.doctor.machine_facts import (
    CpuFacts,
    DiskFacts,
    MachineFacts,
    MemoryFacts,
    PortFacts,
    PythonFacts,
    TorchFacts,
)
from partita_operator.cli.doctor.machine_probe import command_output, machine_facts
from partita_operator.cli.doctor.requirements import PackageSet, RequiredPackage

PACKAGE = RequiredPackage("click", ">=8.1", "8.5.1", True)
OLD = RequiredPackage("click", ">=8.1", "7.0", False)
ABSENT = RequiredPackage("torch", ">=2.6", None, False)
HEALTHY = MachineFacts(
    partita="0.1.0",
    python=PythonFacts("3.11.7", ">=3.11", True, "/usr/bin/python3"),
    core=PackageSet("", (PACKAGE,)),
    extras=(PackageSet("operator", (PACKAGE,)),),
    cpu=CpuFacts(usable=4, present=4, load=1.0),
    memory=MemoryFacts(16 * GIB, 12 * GIB),
    disk=DiskFacts(Path("/work"), 100 * GIB),
    torch=TorchFacts("2.13.0", "13.0"),
    gpus=("NVIDIA L4, 23034 MiB, 570.1",),
    ports=(PortFacts("health.port", "--health-port", 8080, False),),
)


def found(**changed: Any) -> dict[str, CheckFinding]:
    """The findings by check, after every command in them was checked."""
    facts = replace(HEALTHY, **changed)
    findings = list(
        machine_findings(facts, lambda extra: f"/usr/bin/pip install {extra}", "/usr/bin/pip install partita")
    )
    check_commands(findings)
    assert len({finding.check for finding in findings}) == len(findings)
    return {finding.check: finding for finding in findings}


def test_a_healthy_machine_has_nothing_wrong() -> None:
    assert {finding.level for finding in found().values()} == {Level.OK}


@pytest.mark.parametrize(
    ("changed", "check", "want", "message"),
    [
        pytest.param(
            {"python": PythonFacts("3.10.1", ">=3.11", False, "/usr/bin/python3")},
            "Python",
            Level.ERROR,
            "needs >=3.11",
            id="old Python",
        ),
        pytest.param({"core": PackageSet("", (OLD,))}, "packages", Level.ERROR, "click>=8.1 (7.0)", id="old package"),
        pytest.param(
            {"extras": (PackageSet("models", (ABSENT,)),)},
            "extra models",
            Level.SKIPPED,
            "not installed",
            id="no extra",
        ),
        pytest.param(
            {"extras": (PackageSet("models", (PACKAGE, ABSENT)),)},
            "extra models",
            Level.SKIPPED,
            "torch>=2.6 (not installed)",
            id="half an extra",
        ),
        pytest.param(
            {"extras": (PackageSet("operator", (OLD,)),)}, "extra operator", Level.ERROR, "(7.0)", id="old extra"
        ),
        pytest.param({"cpu": CpuFacts(1, 8, 0.0)}, "CPU", Level.WARNING, "1 of 8 CPUs", id="one CPU"),
        pytest.param({"cpu": CpuFacts(2, 2, 8.25)}, "CPU", Level.WARNING, "are busy", id="busy"),
        pytest.param({"cpu": CpuFacts(2, 2, None)}, "CPU", Level.OK, "2 of 2", id="unknown load"),
        pytest.param({"memory": MemoryFacts(4 * GIB, 3 * GIB)}, "memory", Level.WARNING, "3 of 4 GiB", id="small"),
        pytest.param({"memory": MemoryFacts(16 * GIB, GIB)}, "memory", Level.WARNING, "1 of 16", id="full memory"),
        pytest.param({"memory": Unknown("no file")}, "memory", Level.SKIPPED, "no file", id="no meminfo"),
        pytest.param({"disk": DiskFacts(Path("/w"), 3 * GIB)}, "disk", Level.WARNING, "3 GiB", id="little disk"),
        pytest.param({"disk": DiskFacts(Path("/w"), GIB // 2)}, "disk", Level.ERROR, "0.5 GiB", id="full disk"),
        pytest.param({"disk": Unknown("gone")}, "disk", Level.SKIPPED, "gone", id="no disk"),
        pytest.param({"torch": None}, "GPUs", Level.SKIPPED, "NVIDIA L4", id="no torch"),
        pytest.param({"torch": TorchFacts("2.13.0+cpu", None)}, "GPUs", Level.WARNING, "does not use", id="CPU torch"),
        pytest.param({"gpus": Unknown("nvidia-smi is not installed")}, "GPUs", Level.OK, "on the CPU", id="no driver"),
        pytest.param({"gpus": Unknown("nvidia-smi fails: x")}, "GPUs", Level.WARNING, "fails: x", id="broken driver"),
        pytest.param({"gpus": ()}, "GPUs", Level.OK, "lists none", id="no GPU"),
        pytest.param(
            {"ports": (PortFacts("health.port", "--health-port", 8080, True),)},
            "port 8080",
            Level.WARNING,
            "Another process",
            id="port in use",
        ),
    ],
)
def test_findings(changed: dict[str, Any], check: str, want: Level, message: str) -> None:
    finding = found(**changed)[check]
    assert finding.level is want
    assert message in finding.message


def test_a_torch_for_cpus_is_replaced_by_the_same_release() -> None:
    command = found(torch=TorchFacts("2.13.0+cpu", None))["GPUs"].command
    assert shlex.split(command)[-1] == "torch==2.13.0"


def test_every_extra_has_a_purpose(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert {extra.extra for extra in facts.extras} == PURPOSES.keys()
    check_commands(machine_findings(facts, lambda extra: f"/bin/pip {extra}", "/bin/pip"))


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param(("no-such-program",), "no-such-program is not installed", id="missing"),
        pytest.param(("sh", "-c", "echo broken >&2; exit 3"), "sh fails: broken", id="fails"),
        pytest.param(("sh", "-c", "exit 3"), "sh fails: exit code 3", id="fails in silence"),
        pytest.param(("sleep", "60"), "sleep takes longer than 0 s", id="hangs"),
    ],
)
def test_a_command_that_fails_is_unknown(command: tuple[str, ...], want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "partita_operator.cli.doctor.machine_probe.COMMAND_SECONDS", 0.2 if command[0] == "sleep" else 10.0
    )
    assert command_output(*command) == Unknown(want)
