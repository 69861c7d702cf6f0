"""Files of models in a bucket and in a registry, each a real server of its protocol."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from partita_api.session.module import ModelSource
from partita_devtools.machine.ports import free_ports
from partita_runtime.models.errors import ModelError
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.models.remote_files import Artifact
from partita_runtime.models.source import load_model

FILE = "detector.pt2"
INPUT = torch.tensor([[1.0, 2.0]])
OTHER_DIGEST = "0" * 64


class Detector(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * x


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / FILE
    torch.export.save(torch.export.export(Detector(), (INPUT,)), path)
    return path


@pytest.fixture
def digest(model: Path) -> str:
    return hashlib.sha256(model.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def nothing_fetched_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@contextmanager
def serving(command: list[str], url: str, log: Path) -> Iterator[str]:
    """A server that answers at `url`."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            deadline = time.monotonic() + 120
            while not _answers(url):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield url
        finally:
            server.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code < 500
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def bucket(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The place of a bucket of moto's S3 server that has the model, with the variables of a pod that may read it."""
    pytest.importorskip("moto", reason="no S3 server: pip install 'moto[s3]' flask flask-cors")
    s3fs = pytest.importorskip("s3fs", reason="fsspec cannot reach S3: pip install s3fs")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("s3") / "log"
    with serving(command, f"http://127.0.0.1:{port}", log) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", url)
        environment.setenv("AWS_ACCESS_KEY_ID", "pod")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdir("models")
        files.put_file(str(model), f"models/team/{FILE}")
        yield "s3://models/team/"


@pytest.fixture(scope="module")
def registry(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The place of an artifact with the model and another file, tagged 1, in Docker's registry."""
    if (program := shutil.which("docker-registry")) is None:
        pytest.skip("no OCI registry: apt-get install docker-registry")
    client = pytest.importorskip("oras.client", reason="registries cannot be reached: pip install oras")
    directory = tmp_path_factory.mktemp("registry")
    (port,) = free_ports(1)
    settings = directory / "config.yml"
    settings.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {directory / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    host = f"127.0.0.1:{port}"
    with serving([program, "serve", str(settings)], f"http://{host}/v2/", directory / "log"):
        (model.parent / "README").write_text("A detector.")
        with pytest.MonkeyPatch.context() as place:
            place.chdir(model.parent)
            client.OrasClient(insecure=True).push(f"{host}/team/vision:1", files=[FILE, "README"])
        yield f"oci://{host}/team/"


@pytest.fixture(params=["S3", "OCI"])
def place(request: pytest.FixtureRequest) -> str:
    """Common prefix of the files' URIs, for a policy."""
    found: str = request.getfixturevalue("bucket" if request.param == "S3" else "registry")
    return found


def uri(place: str, file: str = FILE) -> str:
    return f"{place}vision:1/{file}" if place.startswith("oci:") else f"{place}{file}"


def allow(monkeypatch: pytest.MonkeyPatch, *places: str) -> None:
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(files=places)))


def refusal(source: ModelSource) -> tuple[str, str]:
    with pytest.raises(ModelError) as refused:
        load_model(source)
    return refused.value.reason, str(refused.value)


def test_a_model_is_fetched_from_an_allowed_place(
    place: str, digest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, place)

    found: Any = load_model(ModelSource(file=uri(place), sha256=digest))

    torch.testing.assert_close(found.module()(INPUT), 3 * INPUT)
    (directory,) = tmp_path.iterdir()
    assert [path.name for path in directory.iterdir()] == [f"{digest}.pt2"]
    assert os.stat(directory).st_mode & 0o777 == 0o700


def test_a_file_with_another_digest_is_refused(place: str, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, place)
    reason, message = refusal(ModelSource(file=uri(place), sha256=OTHER_DIGEST))
    assert reason == "Forbidden"
    assert digest in message


def test_files_from_other_places_are_not_fetched(
    place: str, digest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "/models/", f"{place}elsewhere/")
    reason, message = refusal(ModelSource(file=uri(place), sha256=digest))
    assert reason == "Forbidden"
    assert "models.allowedFiles" in message

    monkeypatch.delenv(VARIABLE)
    assert "models.allowedFiles" in refusal(ModelSource(file=uri(place), sha256=digest))[1]
    allow(monkeypatch, place)
    assert "sha256" in refusal(ModelSource(file=uri(place)))[1]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_reported(place: str, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, place)
    reason, message = refusal(ModelSource(file=uri(place, "classifier.pt2"), sha256=digest))
    assert reason == "FileUnreadable"
    assert "classifier.pt2" in message


def test_an_artifact_is_also_found_by_its_digest(registry: str, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, registry)
    url = registry.replace("oci://", "http://").replace("/team/", "/v2/team/vision/manifests/1")
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    named = httpx.get(url, headers=accept, trust_env=False).headers["Docker-Content-Digest"]

    load_model(ModelSource(file=f"{registry}vision@{named}/{FILE}", sha256=digest))


@pytest.mark.parametrize(
    ("written", "want"),
    [
        pytest.param("oci://r.io/a/b:1/m.pt2", Artifact("r.io/a/b:1", "m.pt2"), id="tag"),
        pytest.param(
            f"oci://r:5000/a@sha256:{OTHER_DIGEST}/m.pt",
            Artifact(f"r:5000/a@sha256:{OTHER_DIGEST}", "m.pt"),
            id="digest",
        ),
        pytest.param("oci://r.io/a/b/m.pt2", None, id="neither tag nor digest"),
        pytest.param("oci://r.io/m.pt2", None, id="no repository"),
        pytest.param("oci://r.io/a:1/sub/m.pt2", None, id="a file in a directory"),
        pytest.param("oci://me:secret@r.io/a:1/m.pt2", None, id="credentials"),
    ],
)
def test_artifacts_are_named_with_tag_or_digest(written: str, want: Artifact | None) -> None:
    if want is None:
        with pytest.raises(ModelError, match="REPOSITORY:TAG/FILE"):
            Artifact.of(written)
    else:
        assert Artifact.of(written) == want
