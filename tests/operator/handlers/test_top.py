"""`partita top` with an operator on a real API server: its live output, also while the server is away."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.operator.doubles import signals
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, eventually, pool, reason, session
from tests.patience import PATIENCE_SECONDS

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

pytestmark = pytest.mark.apiserver


class Terminal:
    """A command on its own terminal, wide enough for all columns."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "COLUMNS": "200", "LINES": "60", "TERM": "xterm"}
        command = [sys.executable, "-m", "partita_operator", *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            # A shell starts background jobs with SIGINT ignored, and a process inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)

    def until(self, text: str) -> None:
        """Wait until new output contains this text."""
        shown = ""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in shown:
            assert time.monotonic() < deadline, f"{text!r} is not shown: {shown[-3000:]}"
            shown += self._read()

    def interrupt(self) -> int:
        """Send Ctrl-C. Returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._process.poll() is None:  # a process cannot end while it waits for a full terminal to be read
            assert time.monotonic() < deadline, "it does not end"
            with contextlib.suppress(OSError):  # it has ended
                self._read()
        return self._process.returncode

    def _read(self) -> str:
        """What it has written since, after a moment if that is nothing yet."""
        try:
            return os.read(self._ours, 65536).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.05)
            return ""

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@contextlib.contextmanager
def top_on_a_terminal(kubeconfig: Path, namespace: str) -> Iterator[Terminal]:
    """The live table of a namespace."""
    place = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]
    terminal = Terminal("top", "--interval", "0.2", *place)
    try:
        yield terminal
    finally:
        terminal.close()


def top_once(namespace: Kubectl) -> Json:
    arguments = ["top", "--kubeconfig", str(namespace.kubeconfig), "--namespace", namespace.namespace, "-o", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    seen: Json = json.loads(result.stdout)
    return seen


async def test_pools_and_sessions_have_the_measurements_of_the_operator(
    namespace: Kubectl, operators: Operators, control_plane: ControlPlane
) -> None:
    namespace.apply(pool("fast", count=16), session("traffic"))
    async with operators.running():
        await eventually(lambda: namespace.get("isess", "traffic"), lambda found: reason(found) == ("True", "Serving"))
        served = namespace.get("isess", "traffic")
        assert served is not None
        plan = served["status"]["currentPlan"]
        key = f"{namespace.namespace}/traffic"
        with top_on_a_terminal(namespace.kubeconfig, namespace.namespace) as terminal:
            await asyncio.to_thread(terminal.until, plan["name"])
            operators.engine.reported[key] = signals(plan["name"], offered=321, bad=0.125)
            await asyncio.to_thread(terminal.until, "12.5%")
            seen = await eventually(lambda: top_once(namespace), lambda now: now["sessions"][0]["badRate"] == 0.125)
            (shown,) = seen["sessions"]
            assert (shown["session"], shown["ready"], shown["plan"]) == (key, "True", plan["name"])
            assert (shown["offeredRate"], shown["sloMs"]) == (321, 200)
            assert shown["costPerHour"] == float(plan["costPerHour"])
            (fast,) = (row for row in seen["pools"] if row["pool"] == "fast")
            assert (fast["capacity"], fast["sessions"]) == (16, [key])
            assert fast["allocated"] + fast["free"] == 16
            control_plane.kill_api_server()
            try:
                await asyncio.to_thread(terminal.until, "does not answer")
            finally:
                control_plane.restart_api_server()
            operators.engine.reported[key] = signals(plan["name"], offered=123, bad=0.25)
            await asyncio.to_thread(terminal.until, "25.0%")
            assert await asyncio.to_thread(terminal.interrupt) == ExitCode.INTERRUPTED
