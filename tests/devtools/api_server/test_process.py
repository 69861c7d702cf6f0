"""The API server's process, through the operator's client and through plain HTTP."""

import asyncio
import json
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.crds.documents import SESSION
from tests.patience import PATIENCE_SECONDS

from partita_devtools.api_server.process import TOKEN_VARIABLE, EmbeddedApiServer, load_api_server, start_api_server
from partita_devtools.definitions import apply_definitions
from partita_devtools.errors import DevError
from partita_devtools.machine.certificates import create_authority
from partita_devtools.machine.processes import ProcessIdentity, is_running, send
from partita_operator.kube.client import KubernetesClient, WatchEvent
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import ConfigMapResource, DefinitionResource, PodResource, PoolResource

POOL = {"metadata": {"name": "fast", "labels": {"tier": "gold"}}, "spec": {"count": 2}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedApiServer]:
    server = start_api_server(tmp_path_factory.mktemp("api-server"), report=print, dies_with_parent=True)
    yield server
    server.stop()


@pytest.fixture
async def client(server: EmbeddedApiServer) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(await load_config(server.kubeconfig)) as client:
        yield client
        for pool in await client.list(PoolResource):
            await client.delete(PoolResource, pool["metadata"]["name"])


async def test_the_client_writes_and_reads(client: KubernetesClient) -> None:
    await client.apply(PoolResource, POOL)
    await client.apply_status(PoolResource, {"metadata": {"name": "fast"}, "status": {"capacity": 2}})
    found = await client.get(PoolResource, "fast")

    assert (found["spec"], found["status"]) == ({"count": 2}, {"capacity": 2})
    assert await client.list(PoolResource, labels="tier=gold") == [found]
    assert await client.list(PoolResource, labels="tier=silver") == []
    await client.delete(PoolResource, "fast")
    with pytest.raises(ApiError, match=r'gpupools "fast" not found') as missing:
        await client.get(PoolResource, "fast")
    assert is_missing(missing.value)


async def test_the_definitions_are_established(client: KubernetesClient) -> None:
    await apply_definitions(client)
    assert len(await client.list(DefinitionResource)) == 3


async def test_a_watch_reports_changes_that_match_its_selector(client: KubernetesClient) -> None:
    def config_map(name: str, namespace: str = "watched", **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}

    since = await client.version(ConfigMapResource, "watched")
    await client.apply(ConfigMapResource, config_map("early", seen="yes"))
    seen: list[WatchEvent] = []
    async with aclosing(client.changes(ConfigMapResource, "watched", labels="seen", since=since)) as changes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            seen.append(await anext(changes))
            await client.apply(ConfigMapResource, config_map("other"))
            await client.apply(ConfigMapResource, config_map("elsewhere", "b", seen="yes"))
            await client.apply(ConfigMapResource, config_map("late", seen="yes"))
            await client.apply(ConfigMapResource, config_map("late"))
            seen.append(await anext(changes))
            seen.append(await anext(changes))
    assert [(o["metadata"]["name"], bool(o["metadata"].get("labels")), deleted) for o, deleted in seen] == [
        ("early", True, False),
        ("late", True, False),
        ("late", False, True),
    ]


async def test_a_watch_reports_what_was_deleted_before_it_began(client: KubernetesClient) -> None:
    await client.apply(PoolResource, POOL)
    since = await client.version(PoolResource)
    await client.delete(PoolResource, "fast")
    async with aclosing(client.changes(PoolResource, since=since, labels="tier=gold")) as changes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(changes)).object["metadata"]["name"] == "fast"


async def test_a_kind_that_is_not_served_is_named(client: KubernetesClient) -> None:
    with pytest.raises(ApiError, match=r"does not serve v1 pods; it serves .*inferencesessions"):
        await client.list(PodResource)


async def test_a_json_patch_is_refused_with_what_is_supported(client: KubernetesClient) -> None:
    await client.apply(PoolResource, POOL)
    with pytest.raises(ApiError, match=r"merge-patch\+json, not application/json-patch\+json"):
        await client.json_patch(PoolResource, "fast", [{"op": "remove", "path": "/spec/count"}])


async def test_the_objects_outlive_the_process(tmp_path: Path) -> None:
    server = start_api_server(tmp_path, report=print, dies_with_parent=True)
    port = json.loads((tmp_path / "api-server.json").read_text())["port"]
    async with KubernetesClient(await load_config(server.kubeconfig)) as client:
        before = await client.apply(PoolResource, POOL)
    record = json.loads((tmp_path / "api-server.json").read_text())
    send(ProcessIdentity(**record["process"]), signal.SIGKILL)
    await asyncio.to_thread(server.stop)

    again = start_api_server(tmp_path, report=print, dies_with_parent=True)
    try:
        assert json.loads((tmp_path / "api-server.json").read_text())["port"] == port
        async with KubernetesClient(await load_config(again.kubeconfig)) as client:
            assert await client.get(PoolResource, "fast") == before
    finally:
        again.stop()
    assert again.health() == "not running"


def test_a_server_that_runs_is_not_started_twice(server: EmbeddedApiServer) -> None:
    before = (server.state_dir / "api-server.json").read_text()
    start_api_server(server.state_dir, report=print)
    assert (server.state_dir / "api-server.json").read_text() == before
    assert load_api_server(server.state_dir) == server


def test_a_server_without_a_record_is_stopped_before_another_starts(tmp_path: Path) -> None:
    server, lines = start_api_server(tmp_path, report=print, dies_with_parent=True), list[str]()
    (first,) = server.running_processes()
    (tmp_path / "api-server.json").unlink()

    start_api_server(tmp_path, report=lines.append, dies_with_parent=True)
    try:
        assert not is_running(first)
        assert server.health() == "ok"
        assert lines[0] == "stopping what still runs of an earlier API server"
    finally:
        server.stop()


@pytest.mark.parametrize("file", ["ca.crt", "ca.key"])
def test_a_certificate_that_a_full_disk_cut_off_is_made_again(file: str, tmp_path: Path) -> None:
    create_authority(tmp_path / "pki")
    (tmp_path / "pki" / file).write_bytes(b"")
    server = start_api_server(tmp_path, report=print, dies_with_parent=True)
    assert server.health() == "ok"
    server.stop()


def test_a_second_process_on_the_same_objects_is_refused(server: EmbeddedApiServer) -> None:
    pair = [str(server.state_dir / "pki" / f"embedded-api-server.{end}") for end in ("crt", "key")]
    command = [sys.executable, "-m", "partita_devtools.api_server", str(server.objects), "1", *pair]
    second = subprocess.run(command, env={TOKEN_VARIABLE: "x"}, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert second.stderr.strip() == f"another process serves the objects in {server.objects}"


def test_a_file_without_an_object_stops_the_start_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "objects" / "gpupools").mkdir(parents=True)
    (tmp_path / "objects" / "gpupools" / "fast.yaml").write_text("kind: GPUP")
    with pytest.raises(DevError, match=r"(?s)did not start.*gpupools/fast\.yaml does not hold a complete object"):
        start_api_server(tmp_path, report=print, dies_with_parent=True)


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic abc"])
def test_a_request_without_the_token_is_refused(server: EmbeddedApiServer, token: str) -> None:
    status, answer = request(server, "GET", "/api/v1/configmaps", token=token)
    assert (status, answer["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "body", "want"),
    [
        pytest.param("POST", "/api/v1/namespaces/a/configmaps", "{", 400, id="body cut off"),
        pytest.param("POST", "/api/v1/namespaces/a/configmaps", "[]", 400, id="body is no object"),
        pytest.param("POST", "/api/v1/namespaces/a/configmaps", '{"metadata": 5}', 400, id="metadata is no object"),
        pytest.param("POST", "/api/v1/namespaces/a/configmaps", "{}", 422, id="no name"),
        pytest.param("GET", "/api/v1/configmaps?labelSelector=(", None, 400, id="bad selector"),
        pytest.param("GET", "/api/v1/configmaps?watch=1&resourceVersion=x", None, 400, id="bad version"),
        pytest.param("GET", "/api/v1/configmaps?watch=1&resourceVersion=5", None, 410, id="version of long ago"),
        pytest.param("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=x", None, 400, id="bad time"),
        pytest.param("GET", "/apis/none/v1", None, 404, id="unknown group"),
        pytest.param("GET", "/apis/none", None, 404, id="short path"),
        pytest.param("DELETE", "/api/v1/configmaps", None, 405, id="all at once"),
        pytest.param("PUT", "/nothing", None, 404, id="no API at all"),
    ],
)
def test_a_wrong_request_is_answered_with_a_status(
    server: EmbeddedApiServer, method: str, path: str, body: str | None, want: int
) -> None:
    status, answer = request(server, method, path, body)
    assert (status, answer["kind"], answer["code"]) == (want, "Status", want)
    assert answer["message"]


def test_discovery_names_the_kinds(server: EmbeddedApiServer) -> None:
    _, groups = request(server, "GET", "/apis")
    assert "partita.dev" in [group["name"] for group in groups["groups"]]
    _, resources = request(server, "GET", "/apis/partita.dev/v1alpha1")
    assert {"gpupools", "gpupools/status"} < {resource["name"] for resource in resources["resources"]}


def request(
    server: EmbeddedApiServer, method: str, path: str, body: str | None = None, token: str | None = None
) -> tuple[int, Any]:
    """The status code and the document of an answer."""
    record = json.loads((server.state_dir / "api-server.json").read_text())
    context = ssl.create_default_context(cafile=str(server.state_dir / "pki" / "ca.crt"))
    headers = {
        "Authorization": f"Bearer {record['token']}" if token is None else token,
        "Content-Type": "application/json",
    }
    desired = urllib.request.Request(
        f"https://127.0.0.1:{record['port']}{path}", body.encode() if body else None, headers, method=method
    )
    try:
        with urllib.request.urlopen(desired, timeout=30, context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_applies_lists_and_deletes(server: EmbeddedApiServer, tmp_path: Path) -> None:
    def kubectl(*arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(server.kubeconfig), "--cache-dir", str(tmp_path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    manifest = tmp_path / "pool.yaml"
    manifest.write_text(json.dumps({"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", **POOL}))
    apply = ("apply", "--validate=false", "-f", str(manifest))  # it has no OpenAPI document to validate with
    assert "gpupool.partita.dev/fast" in kubectl(*apply)
    assert "fast" in kubectl("get", "gpool")
    assert "count: 2" in kubectl("get", "gpool/fast", "-o", "yaml")
    kubectl("delete", "gpool", "fast")
    assert "fast" not in kubectl("get", "gpool", "--ignore-not-found")

    manifest.write_text(json.dumps(SESSION))
    assert kubectl(*apply) == "inferencesession.partita.dev/traffic created\n"
    assert kubectl(*apply) == "inferencesession.partita.dev/traffic unchanged\n"
