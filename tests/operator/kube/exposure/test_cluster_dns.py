"""Whether the cluster has a DNS, as the operator's pod sees it."""

import asyncio

import pytest
from tests.operator.kubectl import eventually

from partita_operator.kube.exposure.cluster_dns import IN_POD, ClusterDns

KNOWN, UNKNOWN = "localhost", "no-such-name.invalid"


@pytest.mark.parametrize(
    ("name", "checks", "want"),
    [
        pytest.param(KNOWN, 0, None, id="not checked yet"),
        pytest.param(KNOWN, 1, True, id="the name resolves"),
        pytest.param(UNKNOWN, 1, None, id="one failure"),
        pytest.param(UNKNOWN, 2, False, id="two failures"),
    ],
)
async def test_a_name_that_does_not_resolve_twice_means_no_dns(name: str, checks: int, want: bool | None) -> None:
    dns = ClusterDns(name)
    for _ in range(checks):
        await dns.check()

    assert dns.works is want


async def test_outside_of_a_pod_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IN_POD, raising=False)
    dns = ClusterDns(KNOWN)
    await dns.watch()

    assert dns.works is None


async def test_in_a_pod_it_is_checked_until_the_operator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_POD, "10.0.0.1")
    dns = ClusterDns(KNOWN)
    watching = asyncio.create_task(dns.watch())
    await eventually(lambda: dns.works, lambda works: works is True)

    assert not watching.done()
    watching.cancel()
