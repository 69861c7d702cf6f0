"""Events as the API server stores them."""

from datetime import UTC, datetime

import pytest
from tests.builders import session
from tests.operator.handlers.faults.api_double import Answer, Request
from tests.operator.handlers.in_memory import client_of

from partita_operator.kube.events import MAX_MESSAGE, publish
from partita_operator.reconcile.actions import Event
from partita_operator.reconcile.reasons import Severity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Recorder:
    """Stores the message of the event that is created."""

    message = ""

    async def handle(self, request: Request) -> Answer:
        self.message = request.body["message"]
        return Answer(201, request.body)


async def published(message: str) -> str:
    recorder = Recorder()
    owner = session("traffic").model("detector").build()
    await publish(client_of(recorder), owner, Event(Severity.WARNING, "InvalidSpec", message), NOW)
    return recorder.message


@pytest.mark.parametrize(
    "character",
    [
        pytest.param("\n", id="line feed"),
        pytest.param("\r", id="carriage return"),
        pytest.param("\x1b", id="escape"),
        pytest.param("\u2028", id="line separator"),
        pytest.param("\x00", id="NUL"),
    ],
)
async def test_text_of_users_does_not_make_lines_of_kubectl_get_events(character: str) -> None:
    message = await published(f"pool a{character}LAST SEEN   TYPE     REASON is wrong")
    assert message.isprintable()
    assert "LAST SEEN" in message, "nothing is left out"


async def test_a_long_message_is_cut_where_the_api_server_would_refuse_it() -> None:
    assert len(await published("\n" * MAX_MESSAGE)) == MAX_MESSAGE
