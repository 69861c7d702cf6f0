"""One object must not stop the operator, whatever the API server lets its author write."""

import asyncio
import json
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import httpx
import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session
from tests.patience import PATIENCE_SECONDS
from tests.security.objects.hostile_objects import DEEPEST, hostile_sessions, maps, with_arguments

from partita_api.fields.arguments import MAX_KEY
from partita_api.inferencesession import InferenceSessionStatus
from partita_api.meta import PAUSED_ANNOTATION
from partita_devtools.machine.ports import free_ports
from partita_operator.handlers import passes, watches
from partita_operator.handlers.operator import WORKERS
from partita_operator.kube.cache import Kind
from partita_operator.kube.connection import load_config
from partita_operator.reconcile.actions import Decision
from partita_operator.reconcile.session.reconciler import reconcile_session
from partita_operator.reconcile.world import SessionWorld

pytestmark = pytest.mark.apiserver


async def create(namespace: Kubectl, text: str) -> None:
    """Create an object from JSON text. Server-side, because `apply` would record it in an annotation as well."""
    await asyncio.to_thread(namespace, "create", "-f", "-", stdin=text)


def ready(namespace: Kubectl, name: str) -> str:
    """Reason and message of a session's condition. The whole object may be too deep for Python's decoder."""
    found = '{.status.conditions[?(@.type=="Ready")]'
    return namespace("get", "isess", name, "-o", f"jsonpath={found}.reason}}: {found}.message}}").removeprefix(": ")


def unreadable(operators: Operators) -> float:
    """How many sessions the running operator reports as unreadable."""
    metrics = httpx.get(f"http://127.0.0.1:{operators.settings.metrics.port}/metrics", trust_env=False).text
    (line,) = [m for m in metrics.splitlines() if m.startswith('partita_unreadable_objects{kind="InferenceSession"}')]
    return float(line.split()[-1])


async def test_sessions_beyond_every_bound_stop_no_other_session(namespace: Kubectl, operators: Operators) -> None:
    present, created = hostile_sessions("present"), hostile_sessions("created")
    for text in present.values():
        await create(namespace, text)
    await asyncio.to_thread(namespace.apply, pool("fast"), session("traffic"))
    async with operators.running():
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        for text in created.values():
            await create(namespace, text)
        hostile = {**present, **created}
        for name in hostile:
            said = await eventually(partial(ready, namespace, name), bool)
            assert said.startswith("InvalidSpec: The spec is wrong: modules.0.model.kwargs: at most"), name
        await eventually(partial(unreadable, operators), lambda count: count == len(hostile))

        await namespace.wait("delete", "isess", *hostile)
        await asyncio.to_thread(namespace.apply, session("later"))
        await eventually(lambda: namespace.get("isess", "later"), lambda s: reason(s) == ("True", "Serving"))
        await eventually(partial(unreadable, operators), lambda count: count == 0)
        await namespace.wait("delete", "isess", "traffic", "later")


async def test_sessions_with_any_text_are_served_and_get_their_conditions(
    namespace: Kubectl, operators: Operators
) -> None:
    strange = {
        "🙂": "\U0010ffff",
        "controls": "".join(map(chr, range(160))),
        "lines": "\u2028\u2029",
        "x" * MAX_KEY: "<<",
    }
    await create(namespace, with_arguments("strange", json.dumps(strange)))
    paused = session("paused")
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "for lunch 🙂"}
    await asyncio.to_thread(namespace.apply, pool("fast"), paused)
    async with operators.running():
        await eventually(lambda: namespace.get("isess", "strange"), lambda s: reason(s) == ("True", "Serving"))
        held = await eventually(lambda: condition(namespace.get("isess", "paused"), "Held"), bool)
        assert "for lunch 🙂" in held["message"]
        await namespace.wait("delete", "isess", "strange", "paused")


async def test_watches_report_what_is_nested_too_deeply_and_what_follows(namespace: Kubectl) -> None:
    seen: dict[str, Any] = {}
    noticed = asyncio.Event()

    def on_event(kind: Kind, type: str | None, raw: dict[str, Any]) -> None:
        if kind is Kind.SESSION and raw["metadata"]["namespace"] == namespace.namespace:
            seen[raw["metadata"]["name"]] = type
            noticed.set()

    async def until(name: str, *types: str | None) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while seen.get(name, "") not in types:
                noticed.clear()
                await noticed.wait()

    await create(namespace, with_arguments("listed", maps(DEEPEST)))
    garbage = {"kopf.zalando.org/last-handled-configuration": "{", "kopf.zalando.org/on-inferencesessions": "["}
    annotated = session("annotated")
    annotated["metadata"]["annotations"] = garbage
    await asyncio.to_thread(namespace.apply, annotated)
    watching = asyncio.create_task(watches.watch(await load_config(namespace.kubeconfig), on_event, *free_ports(1)))
    try:
        await until("listed", None)
        await until("annotated", None)
        await create(namespace, with_arguments("added", maps(DEEPEST)))
        await until("added", "ADDED", "MODIFIED")
        await namespace.wait("delete", "isess", "listed", "added", "annotated")
        for name in ("listed", "added", "annotated"):
            await until(name, "DELETED")
        await asyncio.to_thread(namespace.apply, session("after"))
        await until("after", "ADDED", "MODIFIED")
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_a_pass_that_fails_unexpectedly_stops_no_other_pass(
    namespace: Kubectl, operators: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def reconcile(world: SessionWorld, now: datetime) -> Decision[InferenceSessionStatus]:
        if world.session.metadata.name.startswith("broken"):
            failed.append(world.session.metadata.name)
            raise ZeroDivisionError("a mistake in Partita")
        return reconcile_session(world, now)

    monkeypatch.setattr(passes, "reconcile_session", reconcile)
    broken = [f"broken-{number}" for number in range(2 * WORKERS)]
    await asyncio.to_thread(namespace.apply, pool("fast"), *(session(name) for name in broken))
    async with operators.running():
        await eventually(lambda: set(failed), lambda names: names == set(broken))
        await asyncio.to_thread(namespace.apply, session("traffic"))
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        await eventually(lambda: len(failed), lambda count: count > len(broken))
        await namespace.wait("delete", "isess", "traffic")
