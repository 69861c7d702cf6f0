"""Sessions are applied to a real API server and watched, with the test in the operator's part."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.devtools.demo.demo_results import condition, demo_result
from tests.patience import PATIENCE_SECONDS

from partita_api.crd_schema import KINDS
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.definitions import apply_definitions, install_definitions
from partita_devtools.demo.example import Example, read_example
from partita_devtools.errors import DevError
from partita_devtools.sessions.objects import apply_manifests, manifest_client, observe
from partita_devtools.sessions.watch import SessionWatch
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import (
    DefinitionResource,
    NamespaceResource,
    PlanResource,
    PoolResource,
    SessionResource,
    document,
)

pytestmark = pytest.mark.apiserver

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traffic-emulated"
ADVICE = "More: partita explain traffic-emulated"


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubernetesClient]:
    async with manifest_client(await load_config(control_plane.kubeconfig)) as client:
        await apply_definitions(client)
        yield client


@pytest.fixture
async def example(client: KubernetesClient) -> AsyncIterator[Example]:
    """The emulated example in a namespace of the test's own. Nothing stays that another test's operator would serve."""
    namespace = f"demo-{uuid4().hex[:8]}"
    await client.apply(NamespaceResource, {"metadata": {"name": namespace}})
    example = read_example(EXAMPLE, namespace)
    yield example
    for kind, where in (
        (SessionResource, {"name": example.session.metadata.name, "namespace": namespace}),
        *((PoolResource, {"name": pool.metadata.name}) for pool in example.pools),
        (NamespaceResource, {"name": namespace}),
    ):
        try:
            await client.delete(kind, **where)
        except ApiError as error:
            if not is_missing(error):
                raise


class Operator:
    """Concludes what the test says."""

    def __init__(self, client: KubernetesClient, example: Example) -> None:
        """`client` writes as the operator."""
        self._client = client
        self._where = {"name": example.session.metadata.name, "namespace": example.session.metadata.namespace or ""}

    async def concludes(self, *conditions: Any, **fields: Any) -> None:
        raw = await self._client.get(SessionResource, **self._where)
        status = {"observedGeneration": raw["metadata"]["generation"], "conditions": [document(c) for c in conditions]}
        manifest = {"metadata": self._where, "status": {**status, **fields}}
        await self._client.apply_status(SessionResource, manifest)

    async def makes_plan(self) -> str:
        plan = demo_result().plan
        session = plan.spec.session.model_copy(update={"name": self._where["name"]})
        spec = document(plan.spec.model_copy(update={"session": session}))
        metadata = {**self._where, "name": plan.metadata.name}
        await self._client.apply(PlanResource, {"metadata": metadata, "spec": spec})
        return plan.metadata.name


@pytest.fixture
async def operator(control_plane: ControlPlane, client: KubernetesClient, example: Example) -> AsyncIterator[Operator]:
    await apply_manifests(client, example.pools, [example.session])
    async with KubernetesClient(await load_config(control_plane.kubeconfig)) as writer:
        yield Operator(writer, example)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def watch(client: KubernetesClient, example: Example, lines: list[str]) -> SessionWatch:
    return SessionWatch(client, example.session, example.pools, lines.append)


async def until(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - what it waits for tells nobody
            await asyncio.sleep(0.05)


async def test_crds_are_put_again_and_again(client: KubernetesClient) -> None:
    await apply_definitions(client)
    await apply_definitions(client)

    definitions = [item["spec"]["names"]["plural"] for item in await client.list(DefinitionResource)]
    assert {kind.plural for kind in KINDS} <= set(definitions)


def test_crds_can_be_installed_before_everything_else(control_plane: ControlPlane) -> None:
    install_definitions(control_plane.kubeconfig)


async def test_applied_again_the_example_stays_as_it_is(client: KubernetesClient, example: Example) -> None:
    await apply_manifests(client, example.pools, [example.session])
    before = await observe(client, example.session, example.pools)
    await apply_manifests(client, example.pools, [example.session])
    after = await observe(client, example.session, example.pools)

    assert after.session.metadata.generation == before.session.metadata.generation == 1
    assert [pool.spec for pool in after.pools] == [pool.spec for pool in example.pools]


async def test_spec_that_the_api_server_refuses_is_said_with_its_message(
    client: KubernetesClient, example: Example
) -> None:
    spec = example.session.spec.model_copy(update={"pools": ("Upper-Case",)})
    wrong = replace(example, session=example.session.model_copy(update={"spec": spec}))

    with pytest.raises(DevError, match=r"refuses InferenceSession traffic-emulated: .*spec\.pools"):
        await apply_manifests(client, wrong.pools, [wrong.session])


async def test_watch_ends_when_the_session_serves(watch: SessionWatch, operator: Operator, lines: list[str]) -> None:
    waiting = asyncio.create_task(watch.until_serving(PATIENCE_SECONDS, ADVICE))
    plan = await operator.makes_plan()
    await operator.concludes(condition("Ready", "False", "Profiling", "0 of 6 profiles are there."))
    await until(lambda: any("0 of 6 profiles" in line for line in lines))
    await operator.concludes(
        condition("Ready", "True"),
        condition("RolledOut", "True"),
        url="http://127.0.0.1:1/x",
        currentPlan={"name": plan, "costPerHour": "3.31", "throughput": "286"},
    )

    found = await waiting

    assert found.current_plan is not None
    assert found.current_plan.metadata.name == plan
    assert [(c.type, c.status) for c in watch.timeline if c.object.startswith("Inf")] == [
        ("Ready", "False"),
        ("RolledOut", "True"),
        ("Ready", "True"),
    ]


async def test_the_url_of_an_environment_before_does_not_end_the_watch(watch: SessionWatch, operator: Operator) -> None:
    """The API server's data outlive Ray: until the operator has looked, the status is that of the former one."""
    watch.serve_url = "http://127.0.0.1:2/"
    serves = (condition("Ready", "True"), condition("RolledOut", "True"))
    plan = {"name": await operator.makes_plan(), "costPerHour": "3.31", "throughput": "286"}
    await operator.concludes(*serves, url="http://127.0.0.1:1/x", currentPlan=plan)

    with pytest.raises(DevError, match="does not serve after 0 s"):
        await watch.until_serving(0.0, ADVICE)

    await operator.concludes(*serves, url="http://127.0.0.1:2/x", currentPlan=plan)
    found = await watch.until_serving(PATIENCE_SECONDS, ADVICE)
    assert found.session.status.url == "http://127.0.0.1:2/x"


async def test_stuck_session_ends_the_watch_with_what_to_change(watch: SessionWatch, operator: Operator) -> None:
    await operator.concludes(condition("Stalled", "True", "SLOTooTight", "The smallest SLO is 300 ms."))

    with pytest.raises(DevError, match=r"(?s)The smallest SLO is 300 ms\..*More: partita explain traffic-emulated"):
        await watch.until_serving(PATIENCE_SECONDS, ADVICE)


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param((), "does the operator run", id="nobody at work"),
        pytest.param((condition("Ready", "False", "Profiling", "1 of 6"),), "Ready=False Profiling: 1 of 6", id="slow"),
    ],
)
async def test_watch_that_takes_too_long_says_how_far_things_are(
    watch: SessionWatch, operator: Operator, conditions: tuple[Any, ...], want: str
) -> None:
    if conditions:
        await operator.concludes(*conditions)

    with pytest.raises(DevError) as given_up:
        await watch.until_serving(0.0, ADVICE)

    assert want in str(given_up.value)
    assert ADVICE in str(given_up.value)
