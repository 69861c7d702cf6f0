"""Sessions on a real API server, from manifest to Ready and away again."""

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.handlers.kubectl import Kubectl, pool, session

pytestmark = pytest.mark.apiserver


async def test_a_session_becomes_ready(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=40s")

        found = namespace.get("isess", "traffic")
        assert found is not None
        print(found)
