"""`examples/traffic/check.py` as a user runs it, against a server whose answers can be wrong."""

import importlib.util
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result
from tests.examples.conftest import EXAMPLES
from traffic.comparison import plain_classes
from traffic.photos import photographs

CLASSES = {"vehicle": 8, "person": 6}


class Networks(BaseHTTPRequestHandler):
    """Answers one photograph after the other with given classes, then refuses."""

    answers: ClassVar[list[Mapping[str, Sequence[int]]]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, said = (200, self.outputs(self.answers.pop(0))) if self.answers else (400, {"error": "no photograph"})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def outputs(self, classes: Mapping[str, Sequence[int]]) -> dict[str, object]:
        return {
            "outputs": [
                {
                    "name": name,
                    "datatype": "FP32",
                    "shape": [len(found), CLASSES[name]],
                    "data": [float(each == number) for each in found for number in range(CLASSES[name])],
                }
                for name, found in classes.items()
            ]
        }

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers the first two photographs as the networks do."""
    Networks.answers = [{**plain_classes(photograph)} for photograph in photographs(2)]
    with ThreadingHTTPServer(("127.0.0.1", 0), Networks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/default/traffic"
        server.shutdown()


def check(*arguments: str) -> Result:
    spec = importlib.util.spec_from_file_location("traffic_check", EXAMPLES / "traffic" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return CliRunner().invoke(program.check, [*arguments])


def test_the_same_classes(url: str) -> None:
    done = check("--url", url, "--photographs", "2")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "in total: 6 of 6 crops have the same class (100.0%)" in done.stdout


def test_another_class(url: str) -> None:
    vehicles = [(each + 1) % CLASSES["vehicle"] for each in Networks.answers[0]["vehicle"]]
    assert vehicles
    Networks.answers[0] = {**Networks.answers[0], "vehicle": vehicles}

    done = check("--url", url, "--photographs", "2")

    assert done.exit_code == 1
    assert f"{6 - len(vehicles)} of 6 crops have the same class" in done.stdout


def test_more_crops_than_there_are(url: str) -> None:
    Networks.answers[0] = {name: [*found, 0] for name, found in Networks.answers[0].items()}

    assert "photograph 0: 0 of 3 crops have the same class" in check("--url", url, "--photographs", "2").stdout


def test_others_go_on_after_a_photograph_that_is_refused(url: str) -> None:
    done = check("--url", url, "--photographs", "3")

    assert done.exit_code == 0
    assert "photograph 2: not compared: the session refuses it (400): no photograph" in done.stderr


def test_no_session() -> None:
    done = check("--url", "http://127.0.0.1:9/default/traffic", "--photographs", "1")

    assert done.exit_code == 2
    assert "no photograph could be compared" in done.stderr


def test_help() -> None:
    assert "if less than 95 % of all crops have the same class" in " ".join(check("--help").stdout.split())
