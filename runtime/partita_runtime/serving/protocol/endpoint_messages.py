"""What an endpoint is asked for one sample, and the tensors of its answer. Pure.

The Open Inference Protocol with binary tensors, and OpenAI's API: chat completions and embeddings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partita_api.session.endpoint import EndpointProtocol, EndpointSource
from partita_runtime.execution.executor import Array
from partita_runtime.serving.protocol.inference import first_problem
from partita_runtime.serving.protocol.inference_client import AnswerError, Payload, decode_answer, encode_request

_DEFAULT_INPUT: Final = "input"


@dataclass(frozen=True)
class EndpointRequest:
    """A request of POST."""

    path: str
    """It follows the base URL."""
    payload: Payload


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    content: str


class _Choice(BaseModel):
    model_config = ConfigDict(extra="ignore")
    message: _Message


class _Chat(BaseModel):
    model_config = ConfigDict(extra="ignore")
    choices: list[_Choice] = Field(min_length=1)


class _Embedding(BaseModel):
    model_config = ConfigDict(extra="ignore")
    embedding: list[float] = Field(min_length=1)


class _Embeddings(BaseModel):
    model_config = ConfigDict(extra="ignore")
    data: list[_Embedding] = Field(min_length=1, max_length=1)


def request_for(endpoint: EndpointSource, sample: Array) -> EndpointRequest:
    """The request with one sample, a tensor without a batch dimension.

    Raises AnswerError for text that is not UTF-8: it is the answer of a module upstream.
    """
    if endpoint.protocol is EndpointProtocol.OPEN_INFERENCE:
        inputs = {endpoint.input_name or _DEFAULT_INPUT: sample[None]}
        payload = encode_request(inputs, endpoint.outputs, endpoint.parameters)
        return EndpointRequest(f"/v2/models/{quote(endpoint.model, safe='')}/infer", payload)
    text = _text(sample)
    if endpoint.protocol is EndpointProtocol.OPENAI_CHAT:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        path = "/v1/chat/completions"
    else:
        asked, path = {"input": text}, "/v1/embeddings"
    body = {**endpoint.parameters, "model": endpoint.model, **asked}
    return EndpointRequest(path, Payload({"Content-Type": "application/json"}, json.dumps(body).encode()))


def tensors_of(endpoint: EndpointSource, headers: Mapping[str, str], body: bytes) -> list[Array]:
    """The tensors of an answer, without a batch dimension. Raises AnswerError with what is wrong."""
    if endpoint.protocol is EndpointProtocol.OPEN_INFERENCE:
        return _only_rows(endpoint, decode_answer(headers, body))
    try:
        if endpoint.protocol is EndpointProtocol.OPENAI_CHAT:
            text = _Chat.model_validate_json(body).choices[0].message.content
            return [np.array([text.encode()], object)]
        return [np.array(_Embeddings.model_validate_json(body).data[0].embedding, np.float32)]
    except ValidationError as error:
        problem = first_problem(error, "the body")
        raise AnswerError(f"it is not an answer of {endpoint.protocol}: {problem}") from None


def _only_rows(endpoint: EndpointSource, tensors: Mapping[str, Array]) -> list[Array]:
    names = endpoint.outputs or tuple(tensors)
    if missing := [name for name in names if name not in tensors]:
        raise AnswerError(f"it has no output {', '.join(missing)}; it has {', '.join(tensors) or 'none'}")
    for name in names:
        if tensors[name].shape[:1] != (1,):
            raise AnswerError(f"output {name} has shape {list(tensors[name].shape)}, not one row for one sample")
    return [tensors[name][0] for name in names]


def _text(sample: Array) -> str:
    try:
        return bytes(sample.reshape(-1)[0]).decode()
    except UnicodeDecodeError:
        raise AnswerError("its input is text that is not UTF-8") from None
