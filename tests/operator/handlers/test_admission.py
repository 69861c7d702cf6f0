"""The admission webhook: a real API server calls a running operator, as the chart configures it."""

import asyncio
import json
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.docs.pages import blocks, pasted
from tests.docs.shell import Shell
from tests.operator.chart.charts import documents
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, eventually, pool, reason, session
from tests.patience import PATIENCE_SECONDS
from tests.security.objects.hostile_objects import DEEPEST, maps, with_arguments

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.certificates import KeyPair, create_authority, issue_server_certificate
from partita_devtools.machine.ports import free_ports
from partita_operator.handlers.watches import WEBHOOK_PATH
from partita_operator.settings.model import AdmissionSettings

pytestmark = pytest.mark.apiserver

PAGE = "docs/tasks/admission.md"
ASKED = {"admission": "asked"}
"""Label of the objects that the webhook of these tests checks."""


def asked(document: Json) -> Json:
    meta = document["metadata"]
    return {**document, "metadata": {**meta, "labels": {**meta.get("labels", {}), **ASKED}}}


@pytest.fixture
def certificate(tmp_path: Path) -> KeyPair:
    """The certificate of the webhook, as tls.crt and tls.key."""
    return issue_server_certificate(create_authority(tmp_path), tmp_path, "tls")


@pytest.fixture
def port() -> int:
    (free,) = free_ports(1)
    return free


@pytest.fixture
def webhook(namespace: Kubectl, certificate: KeyPair, port: int) -> Iterator[None]:
    """The chart's configuration for an operator on this machine.

    It fails closed, to prove that the webhook is called. It is deleted before the namespace: otherwise the objects of
    the namespace could not be changed any more.
    """
    asks = {"enabled": True, "failurePolicy": "Fail", "timeoutSeconds": 30}
    made = documents({"admission": asks, "scope": "Cluster"})
    (configuration,) = [d for d in made if d["kind"] == "ValidatingWebhookConfiguration"]
    (rules,) = configuration["webhooks"]
    authority = b64encode((certificate.certificate.parent / "ca.crt").read_bytes()).decode()
    path = rules["clientConfig"]["service"]["path"]
    rules["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    rules["objectSelector"] = {"matchLabels": ASKED}
    namespace.apply(configuration)
    name = configuration["metadata"]["name"]
    yield
    namespace("delete", "validatingwebhookconfiguration", name)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "calling webhook" in refusal(namespace, pool("fast"), "--dry-run=server"):
        assert time.monotonic() < deadline, "the API server still calls the webhook"
        time.sleep(0.1)


def refusal(namespace: Kubectl, document: Json, *options: str) -> str:
    """The API server's message if it refuses the manifest, else an empty string."""
    result = namespace.run("apply", *options, "-f", "-", stdin=json.dumps(asked(document)))
    return result.stderr if result.returncode else ""


async def check_page(namespace: Kubectl, folder: Path) -> None:
    """The page's command has the page's output."""
    (command,) = pasted(PAGE)
    (shown,) = [block.output for block in blocks(PAGE) if block.language == "console"]
    (folder / "session.yaml").write_text(json.dumps(asked(session("lost", pools=["fats"]))))

    done = await asyncio.to_thread(Shell(folder, namespace.kubeconfig).run, command)
    assert done.returncode != 0
    assert done.stderr.split() == shown.split()


@pytest.mark.usefixtures("webhook")
async def test_a_manifest_that_contradicts_other_objects_is_refused_with_the_fix(
    namespace: Kubectl, operators: Operators, certificate: KeyPair, port: int, tmp_path: Path
) -> None:
    served = AdmissionSettings(enabled=True, port=port, certificate_directory=certificate.certificate.parent)
    operators.settings = operators.settings.model_copy(update={"admission": served})
    first = namespace.run("apply", "-f", "-", stdin=json.dumps(asked(pool("fast"))))
    assert "failed calling webhook" in first.stderr, "no operator answers yet"

    async def refused(document: Json, *options: str) -> str:
        """The API server's message if it refuses the manifest, else an empty string."""
        return await asyncio.to_thread(refusal, namespace, document, *options)

    async with operators.running():
        await eventually(lambda: refusal(namespace, pool("fast"), "--dry-run=server"), lambda said: not said)
        assert not await refused(pool("fast"))
        assert not await refused(session("traffic")), "the webhook knows the new pool at once"

        cases: list[tuple[Json, str]] = [
            (session("lost", pools=["fats"]), "spec.pools names fats, but the cluster has no GPUPool of this name."),
            (session("lost", poolSelector={"matchLabels": {"tier": "gold"}}), "No GPUPool has the labels tier=gold"),
            (session("traffic", pools=["fats"]), "PoolNotFound"),
            (session("a" * 60), "at most 54 characters"),
            (pool("other", rayResource="partita-pool-fast"), "fast already has the Ray resource partita-pool-fast"),
        ]
        for document, want in cases:
            assert want in await refused(document, "--dry-run=server"), want
        await check_page(namespace, tmp_path)
        assert namespace.get("isess", "lost") is None
        reviews = re.findall(
            r'^partita_admission_reviews_total\{outcome="(\w+)"\} (\S+)$', await operators.metrics(), re.M
        )
        counts = {outcome: float(count) for outcome, count in reviews}
        assert (counts["allowed"] >= 2, counts["refused"], counts["error"]) == (True, len(cases) + 1, 0)

        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        lowered = pool("fast", quotas=[{"namespace": namespace.namespace, "gpus": 0}])
        apply = ["apply", "-f", "-"]
        warned = await asyncio.to_thread(namespace.run, *apply, stdin=json.dumps(asked(lowered)))
        assert (warned.returncode, "Current plans stay" in warned.stderr) == (0, True), warned.stderr
        await namespace.wait("delete", "isess/traffic", "--timeout=60s")


@pytest.mark.usefixtures("webhook")
async def test_the_webhook_answers_only_the_api_server_if_it_needs_a_client_certificate(
    namespace: Kubectl, operators: Operators, certificate: KeyPair, port: int, control_plane: ControlPlane
) -> None:
    directory = certificate.certificate.parent
    served = AdmissionSettings(enabled=True, port=port, certificate_directory=directory)

    def serving(client_ca: KeyPair) -> AbstractAsyncContextManager[None]:
        needed = served.model_copy(update={"client_ca": client_ca.certificate.read_text()})
        operators.settings = operators.settings.model_copy(update={"admission": needed})
        return operators.running()

    asked_for = partial(refusal, namespace, session("lost", pools=["fats"]), "--dry-run=server")
    async with serving(control_plane.authority):
        await eventually(asked_for, lambda said: "PoolNotFound" in said)
        trusted = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        async with httpx.AsyncClient(verify=trusted, trust_env=False) as stranger:
            with pytest.raises(httpx.TransportError):
                await stranger.post(f"https://127.0.0.1:{port}/{WEBHOOK_PATH}", json={})
    async with serving(KeyPair(directory / "ca.crt", directory / "ca.key")):
        # It accepts the connection and closes it.
        await eventually(asked_for, lambda said: "failed calling webhook" in said and "connection refused" not in said)


@pytest.mark.usefixtures("webhook")
async def test_the_webhook_goes_on_after_a_manifest_that_is_too_deep_for_it(
    namespace: Kubectl, operators: Operators, certificate: KeyPair, port: int
) -> None:
    served = AdmissionSettings(enabled=True, port=port, certificate_directory=certificate.certificate.parent)
    operators.settings = operators.settings.model_copy(update={"admission": served})
    async with operators.running():
        lost = partial(refusal, namespace, session("lost", pools=["fats"]), "--dry-run=server")
        await eventually(lost, lambda said: "PoolNotFound" in said)
        deep = with_arguments("deep", maps(DEEPEST), ASKED)
        failed = await asyncio.to_thread(namespace.run, "create", "-f", "-", stdin=deep)
        assert "failed calling webhook" in failed.stderr
        assert "PoolNotFound" in await asyncio.to_thread(lost)
