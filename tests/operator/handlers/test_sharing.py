"""Sessions on a real API server that need more accelerators than their quota allows."""

import json

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session

pytestmark = pytest.mark.apiserver


async def test_a_namespace_gets_no_more_than_its_quota(namespace: Kubectl, operators: Operators) -> None:
    quota = {"namespace": namespace.namespace, "gpus": 2}
    twice = namespace.run("apply", "-f", "-", stdin=json.dumps(pool("fast", quotas=[quota, quota])))
    assert 'spec.quotas[1]: Duplicate value: {"namespace"' in twice.stderr

    namespace.apply(pool("fast", count=16, quotas=[quota]), session("traffic", rate={"requestsPerSecond": 2000}))
    async with operators.running():
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "QuotaExceeded")
        )
        assert f"The quota of namespace {namespace.namespace} is 2" in condition(found, "Ready")["message"]
        namespace.apply(pool("fast", count=16))
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
