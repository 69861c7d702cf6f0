"""The operator's cache is older than the cluster: this does no harm, and the operator notices it."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.operator.doubles import EngineDouble, RunnerDouble
from tests.operator.handlers.faults.api_double import Answer, ApiDouble, Request
from tests.operator.handlers.in_memory import in_default, operator_on
from tests.operator.handlers.skipping_loop import run
from tests.operator.kubectl import Json, pool, reason, session

from partita_operator.handlers.context import Context
from partita_operator.handlers.passes import PassFailedError, process_pool, process_session, remove_leftovers
from partita_operator.kube.cache import Kind
from partita_operator.kube.retries import ApiServerUnavailableError

KEY = "default/traffic"
SESSION = ("inferencesessions", "default", "traffic")


@dataclass
class Interrupted:
    """An API server that changes while the answer to a list is under way."""

    api: ApiDouble = field(default_factory=ApiDouble)
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By plural of the list; each runs once."""

    async def handle(self, request: Request) -> Answer:
        answer = await self.api.handle(request)
        if request.method == "GET" and request.plural in self.meanwhile:
            self.meanwhile.pop(request.plural)()
        return answer


Story = Callable[[Interrupted, Context], Coroutine[Any, Any, None]]


def on_a_settled_cluster(story: Story) -> None:
    """Run the story with an operator that has a serving session."""

    async def begin() -> None:
        server = Interrupted()
        server.api.create("gpupools", pool("fast"))
        server.api.create("inferencesessions", in_default(session("traffic")))
        async with operator_on(server, EngineDouble(), RunnerDouble()) as context:
            await rounds(context)
            assert reason(server.api.objects[SESSION]) == ("True", "Serving")
            await story(server, context)

    run(begin())


async def rounds(context: Context, number: int = 15) -> None:
    for _ in range(number):
        for step in (remove_leftovers(context), process_pool("fast", context), process_session(KEY, context)):
            with suppress(PassFailedError, ApiServerUnavailableError):
                await step


def stored(server: Interrupted, plural: str) -> list[Json]:
    return [o for where, o in server.api.objects.items() if where[0] == plural]


def recreate_session(server: Interrupted) -> None:
    """The session and its finalizer are removed, and another session of the same name is created."""
    meta = server.api.objects[SESSION]["metadata"]
    meta["finalizers"] = []
    server.api.delete(*SESSION)
    server.api.create("inferencesessions", in_default(session("traffic", rate={"requestsPerSecond": 150})))


def test_a_status_of_an_earlier_session_is_not_written_to_a_new_one_of_its_name() -> None:
    async def story(server: Interrupted, context: Context) -> None:
        context.engines.known()[0].applied.clear()  # type: ignore[attr-defined]
        recreate_session(server)
        with suppress(PassFailedError, ApiServerUnavailableError):
            await process_session(KEY, context)
        assert "status" not in server.api.objects[SESSION]
        await rounds(context)
        assert reason(server.api.objects[SESSION]) == ("True", "Serving")
        uid = server.api.objects[SESSION]["metadata"]["uid"]
        assert [plan["spec"]["session"]["uid"] for plan in stored(server, "pipelineplans")] == [uid]

    on_a_settled_cluster(story)


def test_a_change_without_a_watch_event_is_found_by_the_next_list() -> None:
    async def story(server: Interrupted, context: Context) -> None:
        (before,) = stored(server, "pipelineplans")
        server.api.create("inferencesessions", in_default(session("traffic", rate={"requestsPerSecond": 150})))
        await process_session(KEY, context)
        assert stored(server, "pipelineplans") == [before], "it is not in the cache yet"
        await rounds(context)
        assert server.api.objects[SESSION]["status"]["currentPlan"]["name"] != before["metadata"]["name"]

    on_a_settled_cluster(story)


def test_an_object_created_during_a_list_stays() -> None:
    async def story(server: Interrupted, context: Context) -> None:
        def create() -> None:
            server.api.create("inferencesessions", in_default(session("second")))
            context.cache.put(Kind.SESSION, server.api.objects["inferencesessions", "default", "second"])

        server.meanwhile["inferencesessions"] = create
        await context.cache.refresh()
        assert set(context.cache.cluster().sessions) == {KEY, "default/second"}

    on_a_settled_cluster(story)


@pytest.mark.parametrize("created_again", [False, True], ids=["gone", "created again"])
def test_an_object_deleted_during_a_list_is_gone(created_again: bool) -> None:
    async def story(server: Interrupted, context: Context) -> None:
        def delete() -> None:
            recreate_session(server)
            context.cache.forget((Kind.SESSION, KEY))
            if created_again:
                context.cache.put(Kind.SESSION, server.api.objects[SESSION])

        server.meanwhile["inferencesessions"] = delete
        await context.cache.refresh()
        found = context.cache.cluster().sessions.get(KEY)
        assert (found.metadata.uid if found else None) == (
            server.api.objects[SESSION]["metadata"]["uid"] if created_again else None
        )

    on_a_settled_cluster(story)


def test_an_object_deleted_without_an_event_is_gone_after_the_next_list() -> None:
    async def story(server: Interrupted, context: Context) -> None:
        server.api.delete("pipelineplans", "default", stored(server, "pipelineplans")[0]["metadata"]["name"])
        assert context.cache.cluster().plans
        await context.cache.refresh()
        assert not context.cache.cluster().plans

    on_a_settled_cluster(story)
