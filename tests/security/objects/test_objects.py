"""One object must not stop the operator, whatever the API server lets its author write."""

import asyncio
from functools import partial

import httpx
import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, eventually, pool, reason, session
from tests.security.objects.hostile_objects import hostile_sessions

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
