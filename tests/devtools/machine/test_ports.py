"""Ports on the loopback interface."""

import shlex
import socket
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from tests.docs.shell import Shell

from partita_devtools.errors import DevError
from partita_devtools.machine import ports
from partita_devtools.machine.ports import free_ports
from partita_operator.cli.exit_codes import ExitCode


def test_a_machine_without_loopback_is_told_the_command(tmp_path: Path) -> None:
    reader = Shell(tmp_path)
    if reader.run("unshare --map-root-user --net ip link show lo").returncode:
        pytest.skip("this machine permits no network namespaces, or has no `ip`")

    up = "partita local up --state-dir state"
    failed = reader.run(f"unshare --map-root-user --net {up}")

    assert failed.returncode == ExitCode.FAILED
    *_, command = failed.stderr.rstrip().rpartition("on: ")
    assert failed.stderr.startswith("Error: 127.0.0.1 cannot be reached (Network is unreachable).")
    probe = f"{sys.executable} -c 'from partita_devtools.machine.ports import require_loopback as r; r()'"
    reader.paste(f"unshare --map-root-user --net sh -c {shlex.quote(f'{command} && {probe}')}")


@pytest.fixture
def new_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the next port is recorded, in a directory where none is yet."""
    recorded = tmp_path / "next-port"
    monkeypatch.setattr(ports, "_RECORD", recorded)
    free_ports(1)
    return recorded


def test_processes_that_ask_at_the_same_time_get_different_ports() -> None:
    """No server listens in between: a cluster binds some ports minutes after it took them."""
    with ProcessPoolExecutor(4) as pool:
        found = [port for found_ports in pool.map(free_ports, [20] * 40) for port in found_ports]

    assert len(set(found)) == len(found) == 800


def test_a_port_that_something_listens_on_is_passed_over() -> None:
    with socket.socket() as server:
        (port,) = free_ports(1)
        server.bind(("127.0.0.1", port + 1))
        server.listen()

        assert port + 1 not in free_ports(2)


def test_after_the_last_port_comes_the_first(new_turn: Path) -> None:
    new_turn.write_text("29999")

    assert set(free_ports(3)) <= {29999, *range(20000, 20100)}


@pytest.mark.parametrize("content", ["", "not a number", "99999999", "-1", "\xff"])
def test_a_damaged_record_is_replaced(new_turn: Path, content: str) -> None:
    new_turn.write_text(content, encoding="latin-1")

    first, second = free_ports(1), free_ports(1)

    assert first != second
    assert 20000 <= first[0] < 30000


def test_a_record_that_is_a_link_is_refused_with_the_command(new_turn: Path) -> None:
    new_turn.unlink()
    new_turn.symlink_to("/etc/passwd")

    with pytest.raises(DevError) as refused:
        free_ports(1)

    Shell(new_turn.parent).paste(str(refused.value).rpartition("it: ")[2])
    assert free_ports(1)
