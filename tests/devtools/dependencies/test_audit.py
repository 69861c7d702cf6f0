"""The audit of the lock for known vulnerabilities, and the list of its packages."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.devtools.dependencies.lock import ROOT, locked


class VulnerabilityDatabase(BaseHTTPRequestHandler):
    """Answers like osv.dev; it knows one vulnerability, if any, and remembers which packages it was asked for."""

    vulnerable: str | None = None
    asked: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]
        self.asked.add(asked["name"])
        known = {"id": "GHSA-test", "summary": "reads any file", "affected": [{"package": asked}]}
        self.answer({"vulns": [known]} if asked["name"] == self.vulnerable else {})

    def answer(self, document: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database of vulnerabilities that nobody has asked yet."""
    VulnerabilityDatabase.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), VulnerabilityDatabase) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def make(target: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """A target with the tools of this environment, which is taken as it is."""
    command = ["make", "--old-file=install", target, f"VENV={sys.prefix}", *settings]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("vulnerable", "passes"), [pytest.param(None, True, id="none"), pytest.param("pyomo", False, id="one")]
)
def test_the_audit_fails_on_a_known_vulnerability(
    vulnerable: str | None, passes: bool, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip_audit", reason="pip-audit is missing: make install")
    monkeypatch.setattr(VulnerabilityDatabase, "vulnerable", vulnerable)

    run = make("audit", f"OSV={database}", "PASS_UNAUDITED=true")

    assert (run.returncode == 0) is passes, run.stderr
    assert ("GHSA-test" in run.stdout) is not passes
    assert VulnerabilityDatabase.asked == set(locked())


@pytest.mark.parametrize("passes", [False, True])
def test_an_audit_without_a_database_says_so_and_passes_only_if_told(passes: bool) -> None:
    run = make("audit", "OSV=http://127.0.0.1:9", f"PASS_UNAUDITED={str(passes).lower()}")

    assert (run.returncode == 0) is passes
    assert "NOT AUDITED: http://127.0.0.1:9 cannot be reached from here" in run.stderr


def test_the_list_of_packages_has_all_of_the_lock_with_hashes(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is missing: make install")

    run = make("sbom", f"SBOM={tmp_path / 'sbom.json'}")

    assert run.returncode == 0, run.stderr
    listed = json.loads((tmp_path / "sbom.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == "partita"
    assert {part["name"] for part in listed["components"]} >= set(locked())
    assert all(part["externalReferences"][0]["hashes"] for part in listed["components"])
