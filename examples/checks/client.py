"""Asks a session of an example."""

from collections.abc import Mapping
from typing import Any

import httpx
from numpy.typing import NDArray

from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer, encode_request

Array = NDArray[Any]

TIMEOUT_S = 120.0


class NotAnsweredError(Exception):
    """A session has not answered; the message says why."""


class Answer(dict[str, Array]):
    """The tensors of an answer by name."""

    def __missing__(self, name: str) -> Array:
        raise NotAnsweredError(f"the answer has no {name}, so this is not a session of this example")


def ask(client: httpx.Client, url: str, tensors: Mapping[str, Array]) -> Answer:
    """What the session at `url` answers, such as http://127.0.0.1:8000/default/ocr.

    Tensors have a batch dimension. Raises NotAnsweredError, with the session's message if it refuses.
    """
    url = url.rstrip("/")
    request = encode_request(tensors)
    endpoint = f"{url}/v2/models/{url.rpartition('/')[2]}/infer"
    try:
        answer = client.post(endpoint, content=request.body, headers=dict(request.headers), timeout=TIMEOUT_S)
    except httpx.HTTPError as error:
        raise NotAnsweredError(f"{url} does not answer: {error}") from error
    if not answer.is_success:
        raise NotAnsweredError(f"the session refuses it ({answer.status_code}): {_message(answer)}")
    try:
        return Answer(decode_answer(answer.headers, answer.content))
    except AnswerError as error:
        raise NotAnsweredError(f"{url} is not a session of this example: {error}") from error


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
