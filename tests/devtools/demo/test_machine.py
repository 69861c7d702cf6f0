"""The load that a machine can carry."""

import re
import subprocess
from pathlib import Path

import pytest

from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.machine import (
    LEAST_RATE,
    CpuTicks,
    Machine,
    affordable_rate,
    check_memory,
    measure_machine,
)
from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.machine_checks import GIB
from partita_operator.cli.doctor.machine_facts import MemoryFacts


@pytest.mark.parametrize(
    ("machine", "model_seconds", "want"),
    [
        pytest.param(Machine(2, 2.0), 0.03, 5, id="two free cores carry what the manifest declares"),
        pytest.param(Machine(2, 1.0), 0.03, 3, id="one core is busy"),
        pytest.param(Machine(2, 1.0), 0.1, 1, id="one core is busy, and cores are slow"),
        pytest.param(Machine(64, 60.0), 0.03, 5, id="never more than declared"),
        pytest.param(Machine(2, 0.0), 0.03, LEAST_RATE, id="all cores are busy"),
    ],
)
def test_rate_follows_free_cores_and_the_cpu_time_of_a_request(
    machine: Machine, model_seconds: float, want: int
) -> None:
    assert affordable_rate(5, machine, model_seconds) == want


def test_ticks_are_those_of_all_cores(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 50 800 20 5 5 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")

    assert CpuTicks.now(stat) == CpuTicks(idle=820, total=1000)


def test_free_cores_are_the_idle_share_of_all_cores() -> None:
    found = CpuTicks(idle=1_050, total=2_100).machine_since(CpuTicks(idle=1_000, total=2_000))

    assert found.free_cores == found.cores / 2
    assert found.busy == 0.5


def test_this_machine_has_no_more_free_cores_than_cores() -> None:
    found = measure_machine(0.05)

    assert 0 <= found.free_cores <= found.cores


def test_too_little_memory_is_said_before_anything_starts() -> None:
    with pytest.raises(DemoError, match=r"1\.5 of 8\.0 GiB memory are free, and the demonstration needs") as error:
        check_memory(MemoryFacts(8 * GIB, GIB * 3 // 2))

    (command,) = re.findall(r"the largest: ([^)]+)\)", str(error.value))
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert "RSS" in shown.splitlines()[0]


def test_an_example_may_need_more_memory() -> None:
    with pytest.raises(DemoError, match=r"6\.0 of 8\.0 GiB memory are free, and the demonstration needs 9;"):
        check_memory(MemoryFacts(8 * GIB, 6 * GIB), 9.0)


@pytest.mark.parametrize("memory", [MemoryFacts(8 * GIB, 6 * GIB), Unknown("no /proc")], ids=["enough", "unknown"])
def test_enough_or_unknown_memory_is_no_obstacle(memory: MemoryFacts | Unknown) -> None:
    check_memory(memory)
