"""Clients and other tenants try to read a session's measurements: `partita/signals` and `partita/metrics`."""

from collections.abc import AsyncIterator

import pytest
from tests.runtime.serving.in_process.stand import (
    MONITORING,
    MONITORING_TOKEN,
    Stand,
    behind_uvicorn,
    on_its_own_port,
    stand,
)
from tests.runtime.serving.plans import application

from partita_operator.engines.frontend_client import FrontendClient
from partita_operator.engines.monitoring_tokens import MonitoringTokens, derived_token
from partita_runtime.serving.deploy.monitoring_access import authorization, may_monitor, token_digest

APP = application("plain").model("only")
PATHS = pytest.mark.parametrize(
    "path", ["/partita/signals", "/partita/metrics", "/partita/signals/?a=b", "/partita%2Fmetrics"]
)
KEY = "key of the operator"


@pytest.fixture
async def public() -> AsyncIterator[Stand]:
    """The session at the frontend's own port."""
    async with stand(APP, way=on_its_own_port) as running:
        yield running


@pytest.fixture
async def proxied() -> AsyncIterator[Stand]:
    """The session behind Serve's proxy."""
    async with stand(APP, way=behind_uvicorn) as running:
        yield running


@PATHS
@pytest.mark.parametrize("headers", [{}, MONITORING], ids=["without a token", "with the token"])
async def test_nobody_reads_them_at_the_frontends_own_port(public: Stand, path: str, headers: dict[str, str]) -> None:
    for base in ("", "/default/plain"):
        answer = await public.client.get(f"{base}{path}", headers=headers)
        assert answer.status_code == 404, answer.text


@PATHS
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no token"),
        pytest.param({"Authorization": "Bearer"}, id="an empty token"),
        pytest.param({"Authorization": MONITORING_TOKEN}, id="no scheme"),
        pytest.param({"Authorization": f"Basic {MONITORING_TOKEN}"}, id="another scheme"),
        pytest.param(authorization(token_digest(MONITORING_TOKEN)), id="the digest that Ray's dashboard shows"),
        pytest.param(authorization(derived_token(KEY, "other")), id="the token of another namespace"),
        pytest.param(authorization(f"{MONITORING_TOKEN}\xff"), id="a token that is not ASCII"),
    ],
)
async def test_nobody_without_the_token_reads_them_through_serves_proxy(
    proxied: Stand, path: str, headers: dict[str, str]
) -> None:
    sent = [(name, value.encode("latin-1")) for name, value in headers.items()]
    answer = await proxied.client.get(path, headers=sent)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="partita"'), answer.text
    assert "needs the monitoring token" in answer.json()["error"]


@PATHS
async def test_the_bearer_of_the_token_reads_them_through_serves_proxy(proxied: Stand, path: str) -> None:
    answer = await proxied.client.get(path, headers=MONITORING)
    assert answer.status_code == 200, answer.text


async def test_clients_read_the_document_of_the_interface_without_a_token(proxied: Stand, public: Stand) -> None:
    for running in (proxied, public):
        document = (await running.client.get("/openapi.json")).json()
        assert not [path for path in document["paths"] if "partita" in path]


def test_a_frontend_without_a_digest_lets_nobody_read() -> None:
    for token in ("", "anything", token_digest("")):
        assert not may_monitor(f"Bearer {token}", "")


class Chosen(MonitoringTokens):
    """The token of the test, for every namespace."""

    async def of(self, namespace: str) -> str:
        return MONITORING_TOKEN


@pytest.mark.parametrize(
    ("tokens", "want_problem"),
    [pytest.param(Chosen(), "", id="the frontend's"), pytest.param(MonitoringTokens(), "answers 401", id="another")],
)
async def test_the_operator_reads_them_with_the_token(tokens: MonitoringTokens, want_problem: str) -> None:
    frontends = FrontendClient(tokens)
    async with stand(APP) as running:
        answer = await frontends.signals(f"http://{running.url}", "default/plain")
        assert (answer.signals is None) == bool(want_problem)
        assert want_problem in answer.problem
    await frontends.close()
