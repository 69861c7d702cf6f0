"""The credentials of a request log's sink: what the sink gets, and what is sent nowhere."""

import base64
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.runtime.serving.in_process.stand import MONITORING, Stand, post, stand, until
from tests.runtime.serving.plans import Application, application
from tests.runtime.serving.telemetry.event_sink import EventSink, event_sink

from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.telemetry import sink_authorization

PLAIN: Final = application("plain").model("only")
TOKEN: Final = "3b9e7c51f0a2"
Secret = Callable[[str | bytes | None], None]


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secret:
    """Writes the key `token` of Secret `collector` where frontends read it, as a kubelet does; None removes it."""
    monkeypatch.setattr(sink_authorization, "DIRECTORY", str(tmp_path))
    file = tmp_path / "collector" / "token"
    file.parent.mkdir()

    def write(value: str | bytes | None) -> None:
        if value is None:
            file.unlink()
            return
        new = file.with_name("..new")
        new.write_bytes(value if isinstance(value, bytes) else value.encode())
        new.replace(file)

    return write


def logging_to(sink: EventSink, **fields: Any) -> Application:
    return PLAIN.logging_to(sink.url, authorization={"secretName": "collector", **fields})


async def results(running: Stand, **want: int) -> None:
    await until(lambda: dict(running.session.meter.logged) == want, f"the events are {want}")


@pytest.mark.parametrize(
    ("fields", "value", "want"),
    [
        pytest.param({}, TOKEN, f"Bearer {TOKEN}", id="a token"),
        pytest.param({}, f"{TOKEN}\n", f"Bearer {TOKEN}", id="the end of a line"),
        pytest.param(
            {"type": "Basic"}, "ann:pass word", f"Basic {base64.b64encode(b'ann:pass word').decode()}", id="a password"
        ),
        pytest.param({"type": "Basic"}, "ann:", f"Basic {base64.b64encode(b'ann:').decode()}", id="no password"),
    ],
)
async def test_a_sink_gets_the_credentials_of_the_secret(
    secret: Secret, fields: dict[str, str], value: str, want: str
) -> None:
    secret(value)
    async with event_sink() as sink, stand(logging_to(sink, **fields)) as running:
        sink.authorization = want
        assert (await post(running))[0] == 200
        await results(running, sent=2)
    assert [event.kind for event in sink.events] == ["request", "response"]


async def test_a_rotated_secret_is_read_again(secret: Secret) -> None:
    secret("before")
    async with event_sink() as sink, stand(logging_to(sink)) as running:
        sink.authorization = "Bearer before"
        await post(running)
        await results(running, sent=2)
        sink.authorization = "Bearer after"
        await post(running)
        await results(running, sent=2, failed=2)
        secret("after")
        await post(running)
        await results(running, sent=4, failed=2)


async def warnings(running: Stand) -> str:
    answer = await running.client.get("/partita/signals", headers=MONITORING)
    return " ".join(answer.json()["warnings"])


async def test_without_the_secret_requests_are_answered_and_the_warning_names_it(secret: Secret) -> None:
    async with event_sink() as sink, stand(logging_to(sink)) as running:
        assert (await post(running))[0] == 200
        await results(running, failed=2)
        found = await warnings(running)
        assert "frontends find no key token of Secret collector at " in found
        assert found.endswith("Create the Secret, with this key.")
        secret(TOKEN)
        assert await warnings(running) == ""
        secret(None)
        assert "Secret collector" in await warnings(running), "a token that was withdrawn is not used any more"
        await post(running)
        await results(running, failed=4)
    assert sink.events == []


@pytest.mark.parametrize(
    ("type", "value"),
    [
        pytest.param("Bearer", "", id="nothing"),
        pytest.param("Bearer", " \n", id="spaces"),
        pytest.param("Bearer", f"{TOKEN}\r\nce-type: evil", id="another header"),
        pytest.param("Bearer", f"{TOKEN}\nsecond", id="a new line"),
        pytest.param("Bearer", f"{TOKEN}\x00", id="a control character"),
        pytest.param("Bearer", f"{TOKEN} second", id="two words"),
        pytest.param("Bearer", f"{TOKEN}é", id="other letters"),
        pytest.param("Bearer", TOKEN * 1000, id="too long"),
        pytest.param("Basic", TOKEN, id="no user"),
        pytest.param("Basic", f"ann:{TOKEN}\nce-type: evil", id="a password with a new line"),
        pytest.param("Basic", b"ann:\xff" + TOKEN.encode(), id="no text"),
    ],
)
async def test_what_cannot_be_in_a_header_is_sent_nowhere_and_repeated_nowhere(
    secret: Secret, caplog: pytest.LogCaptureFixture, type: str, value: str | bytes
) -> None:
    secret(value)
    caplog.set_level(logging.DEBUG)
    async with event_sink() as sink, stand(logging_to(sink, type=type)) as running:
        assert (await post(running))[0] == 200
        await results(running, failed=2)
        found = await warnings(running)
        assert "key token of Secret collector" in found
        assert "Replace its value." in found
    assert sink.events == []
    assert TOKEN not in found + caplog.text


async def test_the_secret_is_in_no_configuration_signal_metric_or_log(
    secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    secret(TOKEN)
    caplog.set_level(logging.DEBUG)
    async with event_sink() as sink, stand(logging_to(sink)) as running:
        sink.authorization = f"Bearer {TOKEN}x"
        await post(running)
        await results(running, failed=2)
        for path in ("/partita/signals", "/partita/metrics"):
            answer = await running.client.get(path, headers=MONITORING)
            assert TOKEN not in answer.text
        config = running.app.epoch.user_config()
    assert config["requestLog"]["authorization"] == {"secretName": "collector"}
    assert Epoch.model_validate(config).request_log == running.app.request_log
    assert "answers with status 401" in caplog.text
    assert TOKEN not in str(config) + caplog.text


async def test_other_credentials_for_the_same_sink_take_effect_at_once(secret: Secret) -> None:
    secret("ann:one")
    async with event_sink() as sink, stand(logging_to(sink)) as running:
        sink.authorization = "Bearer ann:one"
        await post(running)
        await results(running, sent=2)
        sink.authorization = f"Basic {base64.b64encode(b'ann:one').decode()}"
        running.session.reconfigure(Epoch.model_validate(logging_to(sink, type="Basic").epoch.user_config()))
        await post(running)
        await results(running, sent=4)
        assert TOKEN not in str(running.session.signals())
