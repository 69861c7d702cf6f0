"""The memory of a machine and of a container, from files as Linux writes them."""

from pathlib import Path

import pytest

from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.machine_facts import MemoryFacts
from partita_operator.cli.doctor.machine_probe import memory_facts

GIB = 1 << 30
NO_LIMIT = "9223372036854771712"
MACHINE = MemoryFacts(16 * GIB, 12 * GIB)


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: {16 << 20} kB\nMemFree: {1 << 20} kB\nMemAvailable: {12 << 20} kB\n")
    return path


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param({}, MACHINE, id="no control group"),
        pytest.param({"memory.max": "max", "memory.current": f"{GIB}"}, MACHINE, id="no limit"),
        pytest.param(
            {"memory.max": f"{8 * GIB}", "memory.current": f"{7 * GIB}"}, MemoryFacts(8 * GIB, GIB), id="a container"
        ),
        pytest.param(
            {
                "memory.max": f"{8 * GIB}",
                "memory.current": f"{8 * GIB}",
                "memory.stat": f"anon {2 * GIB}\nfile {6 * GIB}\ninactive_file {5 * GIB}\nactive_file {GIB}\n",
            },
            MemoryFacts(8 * GIB, 6 * GIB),
            id="a container full of files that make way",
        ),
        pytest.param(
            {
                "memory/memory.limit_in_bytes": f"{8 * GIB}",
                "memory/memory.usage_in_bytes": f"{7 * GIB}",
                "memory/memory.stat": f"active_file 0\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}",
            },
            MemoryFacts(8 * GIB, 3 * GIB),
            id="a container of version 1",
        ),
        pytest.param(
            {"memory/memory.limit_in_bytes": NO_LIMIT, "memory/memory.usage_in_bytes": f"{GIB}"},
            MACHINE,
            id="no limit in version 1",
        ),
    ],
)
def test_memory_is_within_the_limit_of_the_container(
    files: dict[str, str], want: MemoryFacts, meminfo: Path, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_facts(meminfo, tmp_path / "groups") == want


def test_another_system_has_no_such_file(tmp_path: Path) -> None:
    assert memory_facts(tmp_path / "none", tmp_path) == Unknown("this system has no /proc/meminfo")
