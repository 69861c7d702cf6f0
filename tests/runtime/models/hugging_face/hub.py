"""A server on this machine that speaks as much of the hub's protocol as downloads of models need."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

COMMIT: Final = "a" * 40
OLD_COMMIT: Final = "b" * 40

_INFO: Final = re.compile(r"/api/models/(?P<name>[^/]+/[^/]+)/revision/(?P<revision>[^/]+)")
_FILE: Final = re.compile(r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass
class Repository:
    """The files of each revision, and how they are served."""

    files: Mapping[str, bytes]
    revisions: Mapping[str, str] = field(default_factory=lambda: {"main": COMMIT, "v1": OLD_COMMIT})
    """Commits of branches and tags."""
    older: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """The files of commits that have others."""
    token: str | None = None
    """Gated: needed to read it."""
    replaced: dict[str, bytes] = field(default_factory=dict)
    """Files whose content is sent in place of what their digests are of."""
    broken_off: dict[str, int] = field(default_factory=dict)
    """How many answers with a file end in the middle."""

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.revisions.values() else self.revisions.get(revision)


def etag(name: str, content: bytes) -> str:
    """The digest by which the hub names a file: SHA-256 for large ones, git's for others."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@dataclass
class Hub:
    """The server's repositories, and the requests that it got."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """Method and path."""
    url: str = ""

    @property
    def downloaded(self) -> list[str]:
        """The files whose content was requested, in order."""
        paths = [request.removeprefix("GET ") for request in self.requests]
        return [found["file"] for path in paths if (found := _FILE.fullmatch(path))]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        found = _INFO.fullmatch(path) or _FILE.fullmatch(path)
        repository = self.hub.repositories.get(found["name"]) if found else None
        if found is None or repository is None:
            return self._refuse(401, "RepoNotFound")
        if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
            return self._refuse(401, "GatedRepo")
        commit = repository.commit(found["revision"])
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        name = found.groupdict().get("file")
        if name is None:
            return self._send(json.dumps(_info(found["name"], commit, repository)).encode(), {})
        files = repository.older.get(commit, repository.files)
        if name not in files:
            return self._refuse(404, "EntryNotFound")
        content = files[name]
        headers = {"ETag": f'"{etag(name, content)}"', "X-Repo-Commit": commit}
        if self.command == "GET" and repository.broken_off.get(name, 0) > 0:
            repository.broken_off[name] -= 1
            return self._send(content, headers, sent=len(content) // 2)
        return self._send(repository.replaced.get(name, content), headers)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, headers: Mapping[str, str], sent: int | None = None) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:sent])


def _info(name: str, commit: str, repository: Repository) -> dict[str, object]:
    siblings = []
    for file, content in repository.older.get(commit, repository.files).items():
        large = {"lfs": {"sha256": etag(file, content), "size": len(content), "pointerSize": 134}}
        siblings.append({"rfilename": file, "size": len(content), **(large if file.endswith(".safetensors") else {})})
    return {"id": name, "sha": commit, "siblings": siblings}


@contextmanager
def serving_hub() -> Iterator[Hub]:
    """A hub without repositories."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
