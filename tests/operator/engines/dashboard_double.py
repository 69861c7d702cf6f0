"""A test double of a Ray dashboard: GET returns the last PUT, or what a test sets. Nothing runs behind it."""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

Json = dict[str, Any]
APPLICATIONS = "/api/serve/applications/"


@dataclass
class DashboardDouble:
    """In a `with` block it listens on its own port, or on a given one."""

    apps: dict[str, Json] = field(default_factory=dict)
    """Applications in the answer of GET."""
    serve_runs: bool = True
    controller_alive: bool = True
    status: int = 200
    """Status of every answer."""
    put_seconds: float = 0.0
    """How long a PUT takes."""
    puts: list[Json] = field(default_factory=list)
    """Bodies of the PUT requests."""
    authorizations: set[str | None] = field(default_factory=set)
    """The headers Authorization of the GET requests; None for a request without one. Empty: there were none."""
    session_name: str = field(default_factory=lambda: f"session_{uuid4().hex}")
    """What the Ray cluster calls itself."""
    host: str = "127.0.0.1"
    port: int = 0

    def __enter__(self) -> Self:
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                double.authorizations.add(self.headers["Authorization"])
                self._answer(double.shown(urlsplit(self.path).path))

            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(double.put_seconds)
                double.take(body)
                self._answer({})

            def _answer(self, content: Json) -> None:
                text = json.dumps(content).encode()
                self.send_response(double.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Do not log requests."""

        self._server = ThreadingHTTPServer((self.host, self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self._server.server_address[1]}"

    def shown(self, path: str) -> Json:
        """The answer of GET."""
        if path == APPLICATIONS:
            return {"controller_info": {"actor_id": "1"} if self.serve_runs else {}, "applications": self.apps}
        if path == "/api/version":
            return {"session_name": self.session_name}
        node = {"node_id": "n1", "start_time_ms": 0, "state": "ALIVE", "resources_total": {"CPU": 8.0}}
        found = [node] if path.endswith("/nodes") else []
        if path.endswith("/actors") and self.controller_alive:
            found = [{"state": "ALIVE"}]
        return {"data": {"result": {"result": found}}}

    def take(self, body: Json) -> None:
        """Replace the applications."""
        self.puts.append(body)
        self.serve_runs = True
        self.apps = {config["name"]: shown_as(config) for config in body["applications"]}


def shown_as(config: Json, **fields: Any) -> Json:
    """An application with this configuration, as GET shows it."""
    return {
        "name": config["name"],
        "status": "DEPLOYING",
        "message": "",
        "last_deployed_time_s": time.time(),
        "source": "declarative",
        "deployed_app_config": config,
        "deployments": {},
    } | fields
