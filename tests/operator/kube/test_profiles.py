"""Profiles in ConfigMaps: read once, and again after a change by hand."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.builders import profile
from tests.operator.kubectl import Kubectl, new_namespace
from tests.patience import PATIENCE_SECONDS

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.kube import profiles
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.profiles import ProfileStore, profile_name

PROFILE = profile("detector").build()
KEY = PROFILE.key
EDITED = '{"data":{"profile.json":"{}"}}'
_NUMBERS = itertools.count(1)

pytestmark = pytest.mark.apiserver


class CountingClient(KubernetesClient):
    """Counts its single reads."""

    reads = 0

    async def get(self, *arguments: Any, **options: Any) -> Any:
        self.reads += 1
        return await super().get(*arguments, **options)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Kubectl]:
    with new_namespace(control_plane.kubeconfig, f"profiles-{next(_NUMBERS)}") as kubectl:
        yield kubectl


@asynccontextmanager
async def store_of(kubectl: Kubectl, *namespaces: str) -> AsyncIterator[tuple[ProfileStore, CountingClient]]:
    """A store that holds the profile."""
    async with CountingClient(await load_config(kubectl.kubeconfig)) as client:
        store = ProfileStore(client, namespaces)
        await store.store(kubectl.namespace, PROFILE)
        yield store, client


@asynccontextmanager
async def watch(store: ProfileStore, client: CountingClient, kubectl: Kubectl) -> AsyncIterator[None]:
    """A period in which the store watches."""
    watching = asyncio.create_task(store.watch())
    try:
        await until(lambda: reads(store, client, kubectl), 0)
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def reads(store: ProfileStore, client: CountingClient, kubectl: Kubectl) -> int:
    """Requests to the API server for one use of the profile."""
    before = client.reads
    assert await store.load(kubectl.namespace, {KEY}) == {KEY: PROFILE}
    return client.reads - before


async def gone(store: ProfileStore, kubectl: Kubectl) -> None:
    await until(lambda: store.load(kubectl.namespace, {KEY}), {})


async def until(look: Callable[[], Awaitable[object]], want: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while await look() != want:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def only_the_watch_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "READ_AGAIN_S", 0.0)


@pytest.mark.parametrize("everywhere", [True, False], ids=["all namespaces", "one namespace"])
async def test_a_profile_that_was_changed_by_hand_is_read_again(namespace: Kubectl, everywhere: bool) -> None:
    places = () if everywhere else (namespace.namespace,)
    async with store_of(namespace, *places) as (store, client), watch(store, client, namespace):
        await namespace.wait("patch", "configmap", profile_name(KEY), "--type=merge", "-p", EDITED)
        await gone(store, namespace)

        await store.store(namespace.namespace, PROFILE)
        assert await reads(store, client, namespace) == 0
        await namespace.wait("delete", "configmap", profile_name(KEY))
        await gone(store, namespace)


async def test_a_profile_that_the_watch_no_longer_reports_is_read_each_time(namespace: Kubectl) -> None:
    async with store_of(namespace) as (store, client), watch(store, client, namespace):
        await namespace.wait("label", "configmap", profile_name(KEY), "partita.dev/profile-")
        await until(lambda: reads(store, client, namespace), 1)
        assert await reads(store, client, namespace) == 1


async def test_a_profile_read_before_a_gap_is_read_again_after_it(namespace: Kubectl) -> None:
    async with store_of(namespace) as (store, client):
        async with watch(store, client, namespace):
            pass
        await namespace.wait("delete", "configmap", profile_name(KEY))
        watching = asyncio.create_task(store.watch())
        await gone(store, namespace)
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_forgotten_profile_is_missing_until_it_is_stored_again(namespace: Kubectl) -> None:
    async with store_of(namespace) as (store, client), watch(store, client, namespace):
        await store.forget(namespace.namespace, KEY)
        assert await store.load(namespace.namespace, {KEY}) == {}
        assert "profile.json" not in namespace("get", "configmap", profile_name(KEY), "-o", "yaml")

        await store.store(namespace.namespace, PROFILE)
        await until(lambda: reads(store, client, namespace), 0)
