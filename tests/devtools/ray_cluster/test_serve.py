"""A configuration that Serve does not take at once is sent again; one that it refuses is an error with its answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy

ECHO = {"name": "echo", "import_path": "echo_app:app"}


class Dashboard:
    """A dashboard that answers with the given codes, the last one again and again."""

    def __init__(self, *codes: int) -> None:
        self.received: list[dict[str, Any]] = []
        codes_left = list(codes)
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                assert self.path == APPLICATIONS_PATH
                assert self.headers["Authorization"] == "Bearer secret"
                received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                code = codes_left.pop(0) if len(codes_left) > 1 else codes_left[0]
                self.send_response(code)
                self.end_headers()
                self.wfile.write(f"answer {code}".encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        self.cluster = cast(RayCluster, SimpleNamespace(dashboard_url=url, auth_token="secret", serve_http_port=8000))


@pytest.fixture
def dashboards() -> Iterator[list[Dashboard]]:
    started: list[Dashboard] = []
    yield started
    for dashboard in started:
        dashboard.server.shutdown()
        dashboard.server.server_close()


def dashboard(started: list[Dashboard], *codes: int) -> Dashboard:
    started.append(Dashboard(*codes))
    return started[-1]


def test_it_is_sent_again_while_serve_has_not_started(dashboards: list[Dashboard]) -> None:
    slow = dashboard(dashboards, 500, 503, 200)
    deploy(slow.cluster, {"applications": [ECHO]})
    one = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [ECHO],
    }
    assert slow.received == [one] * 3


@pytest.mark.parametrize(("code", "within_s"), [(400, 300.0), (500, 0.0)], ids=["refused", "not in time"])
def test_what_serve_does_not_take_is_an_error_with_its_answer(
    dashboards: list[Dashboard], code: int, within_s: float
) -> None:
    refuses = dashboard(dashboards, code)
    with pytest.raises(DevError, match=rf"PUT http://.*{APPLICATIONS_PATH}: .*answer {code}"):
        deploy(refuses.cluster, {"applications": [ECHO]}, within_s=within_s)
    assert len(refuses.received) == 1


def test_it_says_the_proxies_that_it_wants(dashboards: list[Dashboard]) -> None:
    everywhere = dashboard(dashboards, 200)
    deploy(everywhere.cluster, {"proxy_location": "EveryNode", "applications": []}, host="0.0.0.0")
    assert everywhere.received[0]["proxy_location"] == "EveryNode"
    assert everywhere.received[0]["http_options"]["host"] == "0.0.0.0"
