"""Sessions of different priority on a real API server: which one gives way, its messages, and its recovery."""

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session

pytestmark = pytest.mark.apiserver


async def test_a_session_gives_way_to_one_of_higher_priority_and_recovers(
    namespace: Kubectl, operators: Operators
) -> None:
    namespace.apply(pool("fast", count=4), session("plain", rate={"requestsPerSecond": 2500}))

    def replicas(session: str) -> int:
        return sum(t.replicas for t in operators.engine.applied[f"{namespace.namespace}/{session}"].targets)

    async with operators.running():
        await eventually(lambda: namespace.get("isess", "plain"), lambda s: reason(s) == ("True", "Serving"))
        before = replicas("plain")
        assert before == 3

        namespace.apply(session("urgent", rate={"requestsPerSecond": 2500}, priority=10))
        await eventually(lambda: namespace.get("isess", "urgent"), lambda s: reason(s) == ("True", "Serving"))
        outranked = await eventually(
            lambda: namespace.get("isess", "plain"), lambda s: reason(s) == ("False", "Outranked")
        )
        message = condition(outranked, "Ready")["message"]
        assert f"{namespace.namespace}/urgent (priority 10) has 3 of pool fast" in message
        assert "serves with 1 of 3 replicas" in message
        await eventually(lambda: replicas("plain"), lambda n: n == 1)
        (told,) = await eventually(
            lambda: namespace.list("events", "--field-selector", "reason=Outranked"), lambda found: len(found) == 1
        )
        assert (told["type"], told["involvedObject"]["name"]) == ("Warning", "plain")

        await namespace.wait("delete", "isess/urgent", "--timeout=60s")
        await eventually(lambda: namespace.get("isess", "plain"), lambda s: reason(s) == ("True", "Serving"))
        await eventually(lambda: replicas("plain"), lambda n: n == before)
        assert set(operators.engine.applied) == {f"{namespace.namespace}/plain"}
        plain = namespace.get("isess", "plain")
        assert plain is not None
        assert not plain["status"].get("history"), "its plan never changed"


async def test_a_session_of_higher_priority_gets_accelerators_of_a_full_pool(
    namespace: Kubectl, operators: Operators
) -> None:
    namespace.apply(pool("fast", count=3), session("plain", rate={"requestsPerSecond": 2500}))

    async with operators.running():
        await eventually(lambda: namespace.get("isess", "plain"), lambda s: reason(s) == ("True", "Serving"))
        namespace.apply(session("urgent", priority=10))
        await eventually(lambda: namespace.get("isess", "urgent"), lambda s: reason(s) == ("True", "Serving"))
        await eventually(lambda: namespace.get("isess", "plain"), lambda s: reason(s) == ("False", "Outranked"))
