"""Functions of another image: a server with nothing of Partita but what is delivered, and its frontend."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import stand, until
from tests.runtime.serving.plans import application
from tests.runtime.serving.session.test_functions import Calls

from partita_api.session.module import FunctionSource, Module
from partita_runtime.function_server.delivery import deliver
from partita_runtime.serving.deploy.function_containers import VARIABLE, function_socket
from partita_runtime.serving.session import function_processes, functions
from partita_runtime.serving.session.function_pools import FunctionPools
from partita_runtime.serving.session.function_processes import FunctionError

IMAGE = "registry.example/team-a/functions:1.4"

FUNCTIONS = """\
import os, sys
import numpy as np
from partita_runtime.functions import RequestRefusedError

def described(request, upstream, **kwargs):
    number = int(request["input"].flat[0])
    if number < 0:
        raise RequestRefusedError("send a positive number")
    packages = sorted(name for name in sys.modules if name.split(".")[0] in ("partita_api", "pydantic", "ray", "torch"))
    if number == 13:
        os._exit(3)
    if number == 14:
        sum(range(1 << 60))  # no other thread of the process runs meanwhile
    return {"number": np.array(number * 2), "packages": packages}

async def awaited(request, upstream):
    return {"number": request["input"] + 1}
"""


@dataclass
class Container:
    """The process that a container of the image would be."""

    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """With a working directory that has the functions, and numpy as the only package that is not Python's own."""
        app, packages = self.directory / "app", self.directory / "packages"
        command = ["-S", str(self.directory), function_socket(str(self.directory), IMAGE)]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
        self.processes.append(subprocess.Popen([sys.executable, *command], cwd=app, env=environment))
        return self.processes[-1]

    def children(self) -> list[str]:
        process = self.processes[-1].pid
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()

    def stop(self, number: signal.Signals) -> None:
        self.processes[-1].send_signal(number)
        self.processes[-1].wait(30)


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    deliver(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "shop.py").write_text(FUNCTIONS)
    (tmp_path / "packages").mkdir()
    site = Path(np.__file__).parent.parent
    for package in ("numpy", "numpy.libs"):
        if (site / package).exists():
            (tmp_path / "packages" / package).symlink_to(site / package)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    made = Container(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.fixture
async def calls(container: Container, tmp_path: Path) -> AsyncIterator[Calls]:
    made = Calls(tmp_path)
    made.function = FunctionSource(entrypoint="shop:described", image=IMAGE)
    made.pool = functions.FunctionPool([made.function], 1, made, IMAGE)
    container.start()
    await made.pool.prepare()
    yield made
    made.pool.close()


async def test_a_session_has_functions_of_both_images(container: Container) -> None:
    container.start()
    app = application("both").model("only").function("f", "double").slo(5000)
    other = Module(name="g", function=FunctionSource(entrypoint="shop:described", image=IMAGE))
    app = replace(app, functions=(*app.functions, other)).edge("only", "f").edge("only", "g")
    async with stand(app) as running:
        answer = await running.client.post("/v2/models/both/infer", json=body(7))
        found = {output["name"]: output["data"] for output in answer.json()["outputs"]}
        assert (answer.status_code, found["g.number"], found["f.doubled"]) == (200, [14], [14.0] * 4)
        assert found["g.packages"] == [], "the image has nothing of Partita"
        refused = await running.client.post("/v2/models/both/infer", json=body(-1))
        assert (refused.status_code, "send a positive number" in refused.text) == (400, True)


def body(number: float) -> dict[str, object]:
    return {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [number] * 4}]}


async def test_the_frontend_waits_for_the_container(container: Container, tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    calls.pool = functions.FunctionPool([FunctionSource(entrypoint="shop:described", image=IMAGE)], 1, calls, IMAGE)
    prepared = asyncio.create_task(calls.pool.prepare())
    await asyncio.sleep(0)
    assert not prepared.done()
    container.start()
    await prepared
    calls.pool.close()


async def test_a_process_that_ends_fails_its_call_and_is_replaced(calls: Calls) -> None:
    calls.call(1, 13, 2)
    await calls.answered(3)
    assert calls.answers == {1: 2, 13: "its process ended before it answered", 2: 4}


async def test_a_container_that_ends_fails_the_running_call_and_serves_again(
    calls: Calls, container: Container
) -> None:
    calls.call(14)
    await until(lambda: 14 in calls.given, "the call runs")
    container.stop(signal.SIGTERM)
    await calls.answered(1)
    calls.call(3)
    container.start()
    await calls.answered(2)
    assert calls.answers == {14: "its process ended before it answered", 3: 6}


async def test_a_call_that_hangs_is_stopped(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "HUNG_SECONDS", 0.2)
    calls.call(14)
    await calls.answered(1)
    assert "did not answer within" in str(calls.answers[14])
    monkeypatch.undo()
    calls.call(2)
    await calls.answered(2)
    assert calls.answers[2] == 4


async def test_asynchronous_functions_of_the_image(container: Container, tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    calls.function = FunctionSource(entrypoint="shop:awaited", image=IMAGE)
    pools = FunctionPools([calls.function], 1, calls)
    container.start()
    await pools.prepare()
    for number in range(20):
        pools.call(number, calls.function)
    await calls.answered(20)
    assert calls.answers == {number: number + 1 for number in range(20)}
    pools.close()


async def test_processes_end_with_the_connections_of_the_frontend(calls: Calls, container: Container) -> None:
    assert len(container.children()) == 1
    calls.call(14)
    await until(lambda: 14 in calls.given, "the call runs")
    calls.pool.close()
    await until(lambda: not container.children(), "the process is gone, although its call hangs")


@pytest.mark.parametrize(
    ("entrypoint", "want"),
    [
        pytest.param("shop:missing", "cannot be loaded: AttributeError", id="no such function"),
        pytest.param("lost:f", "cannot be loaded: ModuleNotFoundError: No module named 'lost'", id="no such module"),
    ],
)
async def test_a_function_that_the_image_does_not_have(
    container: Container, tmp_path: Path, entrypoint: str, want: str
) -> None:
    container.start()
    pools = FunctionPools([FunctionSource(entrypoint=entrypoint, image=IMAGE)], 1, Calls(tmp_path))
    with pytest.raises(FunctionError, match=want):
        await pools.prepare()


@pytest.mark.usefixtures("container")
async def test_a_missing_container_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_processes, "_START_SECONDS", 0.2)
    pools = FunctionPools([FunctionSource(entrypoint="shop:described", image=IMAGE)], 1, Calls(tmp_path))
    with pytest.raises(FunctionError, match=f"container functions-[0-9a-f]+ of image {IMAGE}: not loaded within"):
        await pools.prepare()


async def test_without_containers_the_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    pools = FunctionPools([FunctionSource(entrypoint="shop:described", image=IMAGE)], 1, Calls(tmp_path))
    with pytest.raises(FunctionError, match="use engine KubeRay"):
        await pools.prepare()


def test_the_server_ends_when_the_container_is_stopped(container: Container) -> None:
    container.start()
    while not Path(function_socket(str(container.directory), IMAGE)).exists():
        assert container.processes[-1].poll() is None
    container.stop(signal.SIGTERM)
    assert container.processes[-1].returncode in (0, -signal.SIGTERM)


def test_an_image_without_numpy_says_what_is_missing(container: Container) -> None:
    (container.directory / "packages" / "numpy").unlink()
    command = [sys.executable, "-S", str(container.directory), str(container.directory / "socket")]
    done = subprocess.run(command, cwd=container.directory / "app", env={}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "install numpy" in done.stderr
