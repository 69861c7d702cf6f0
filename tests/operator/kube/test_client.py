"""The client's requests, and its handling of the API server's answers, with HTTP connections in memory."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError
from tests.operator.handlers.faults.api_double import Answer, Request, status
from tests.operator.handlers.in_memory import client_of
from tests.operator.kube.kubeconfigs import kubeconfig

from partita_operator.kube.client import PAGE_SIZE
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import ApiError, ApiUnreachableError, is_conflict, is_missing
from partita_operator.kube.resources import ConfigMapResource, PoolResource, RayClusterResource, SessionResource


@dataclass
class Script:
    """Answers requests by a script, and records them."""

    answers: list[Answer | Exception]
    requests: list[Request] = field(default_factory=list)

    async def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def page(*names: str, following: str = "") -> Answer:
    metadata = {"resourceVersion": "7", "continue": following}
    return Answer(200, {"metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]})


GONE = status(410, "Expired", "The provided continue parameter is too old")


async def test_a_list_is_read_page_by_page() -> None:
    script = Script([page("a", "b", following="token"), page("c")])
    found = await client_of(script).list(SessionResource, labels="team=vision")
    assert [raw["metadata"]["name"] for raw in found] == ["a", "b", "c"]
    first, second = (request.query for request in script.requests)
    assert first == {"labelSelector": "team=vision", "limit": str(PAGE_SIZE)}
    assert second == {**first, "continue": "token"}
    assert script.requests[0].path == "/apis/partita.dev/v1alpha1/inferencesessions"


async def test_a_list_whose_next_page_has_expired_is_read_again_in_one_answer() -> None:
    script = Script([page("a", following="token"), GONE, page("a", "b")])
    found = await client_of(script).list(SessionResource, "default")
    assert [raw["metadata"]["name"] for raw in found] == ["a", "b"]
    assert script.requests[-1].query == {}


async def test_a_first_page_that_is_gone_is_an_error() -> None:
    with pytest.raises(ApiError, match="too old"):
        await client_of(Script([GONE])).list(SessionResource)


@pytest.mark.parametrize(
    ("answer", "is_so", "want"),
    [
        pytest.param(status(404, "NotFound", 'pools "x" not found'), is_missing, 'pools "x" not found', id="missing"),
        pytest.param(status(409, "Conflict", "conflict with kubectl"), is_conflict, "conflict with kubectl", id="409"),
        pytest.param(
            Answer(404, {}, text="404 page not found\n"),
            is_missing,
            "404 page not found",
            id="unknown kind: plain text",
        ),
        pytest.param(Answer(502, {}, text=""), lambda error: error.status == 502, "Bad Gateway", id="no body"),
    ],
)
async def test_a_refusal_has_the_message_of_the_server(
    answer: Answer, is_so: Callable[[ApiError], bool], want: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await client_of(Script([answer])).get(PoolResource, "x")
    assert is_so(refused.value)
    assert str(refused.value) == want


@pytest.mark.parametrize("failure", [ClientConnectionError("refused"), TimeoutError()], ids=["refused", "too slow"])
async def test_no_answer_differs_from_a_refusal(failure: Exception) -> None:
    with pytest.raises(ApiUnreachableError):
        await client_of(Script([failure])).get(PoolResource, "x")


async def test_an_answer_that_is_not_json_counts_as_no_answer() -> None:
    with pytest.raises(ApiUnreachableError, match="login"):
        await client_of(Script([Answer(200, {}, text="<html>login</html>")])).get(PoolResource, "x")


@dataclass
class Stream(Answer):
    """The answer to a watch request: one event on each line."""

    lines: list[str] = field(default_factory=list)

    @property
    def content(self) -> "Stream":
        return self

    async def readline(self) -> bytes:
        return self.lines.pop(0).encode() if self.lines else b""

    def close(self) -> None:
        """Nothing to close."""

    def release(self) -> None:
        """Nothing to close."""


def event(version: int, kind: str = "MODIFIED") -> str:
    changed = {"kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": changed}) + "\n"


def stream(*lines: str) -> Stream:
    return Stream(200, {}, lines=list(lines))


EXPIRED = json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}) + "\n"


async def test_a_watch_continues_where_its_request_ended_until_the_version_is_gone() -> None:
    script = Script([stream(event(8), event(9, "DELETED")), stream(event(12)), *[stream(EXPIRED) for _ in range(2)]])
    seen: list[tuple[str, bool]] = []

    async def watch() -> None:
        async for changed in client_of(script).changes(ConfigMapResource, labels="profile", since="7"):
            seen.append((changed.object["metadata"]["resourceVersion"], changed.deleted))  # noqa: PERF401 - an error keeps what was seen

    with pytest.raises(ApiError, match="too old") as ended:
        await watch()
    assert seen == [("8", False), ("9", True), ("12", False)]
    assert ended.value.status == 410
    assert [request.query["resourceVersion"] for request in script.requests] == ["7", "9", "12", "12"]
    assert {request.query["labelSelector"] for request in script.requests} == {"profile"}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(stream('{"type": "MODI'), id="half a line"),
        pytest.param(ClientConnectionError("reset"), id="connection lost"),
        pytest.param(TimeoutError(), id="no answer"),
    ],
)
async def test_a_broken_watch_differs_from_a_refusal(ending: Answer | Exception) -> None:
    script = Script([stream(event(8)), ending])

    async def watch() -> None:
        async for _ in client_of(script).changes(ConfigMapResource, since="7"):
            pass

    with pytest.raises(ApiUnreachableError):
        await watch()


async def test_writes_have_the_field_manager_and_the_right_content_type() -> None:
    script = Script([Answer(200, {})] * 5)
    client = client_of(script)
    config_map = {"metadata": {"name": "c", "namespace": "n"}}
    await client.apply(ConfigMapResource, config_map)
    await client.apply_status(PoolResource, {"metadata": {"name": "p"}, "status": {}})
    await client.patch(SessionResource, "s", {"metadata": {}}, "n")
    await client.json_patch(RayClusterResource, "r", [{"op": "test", "path": "/a", "value": 1}], "n")
    await client.delete(SessionResource, "s", "n", propagation="Background")

    apply, of_status, merge, operations, delete = script.requests
    assert apply.path == "/api/v1/namespaces/n/configmaps/c"
    assert apply.content_type == "application/apply-patch+yaml"
    assert apply.query == {"fieldManager": "partita", "force": "false"}
    assert apply.body == {"apiVersion": "v1", "kind": "ConfigMap", **config_map}
    assert of_status.path == "/apis/partita.dev/v1alpha1/gpupools/p/status"
    assert of_status.query == {"fieldManager": "partita", "force": "true"}
    assert merge.content_type == "application/merge-patch+json"
    assert operations.content_type == "application/json-patch+json"
    assert operations.body == [{"op": "test", "path": "/a", "value": 1}]
    assert operations.path == "/apis/ray.io/v1/namespaces/n/rayclusters/r"
    assert (delete.method, delete.query) == ("DELETE", {"propagationPolicy": "Background"})


async def test_expired_credentials_are_loaded_again_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    connection = await load_config(kubeconfig(tmp_path, {"tokenFile": str(token)}))
    token.write_text("second")
    expired = status(401, "Unauthorized")
    script = Script([expired, Answer(200, {"kind": "GPUPool"}), expired, expired])
    client = client_of(script, connection)

    assert await client.get(PoolResource, "x") == {"kind": "GPUPool"}
    assert [request.token for request in script.requests] == ["Bearer first", "Bearer second"]
    with pytest.raises(ApiError, match="Unauthorized"):
        await client.get(PoolResource, "x")
    assert script.answers == []
