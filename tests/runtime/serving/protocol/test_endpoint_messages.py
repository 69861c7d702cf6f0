"""What endpoints are asked, and the tensors of their answers."""

import json
from typing import Any

import numpy as np
import pytest

from partita_api.session.endpoint import EndpointSource
from partita_runtime.serving.protocol.endpoint_messages import request_for, tensors_of
from partita_runtime.serving.protocol.inference_client import AnswerError

TEXT = np.array([b"Ist das \xc3\x84rger?"], object)
CHAT = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Ja, Ärger."}}], "usage": {}}
EMBEDDINGS = {"object": "list", "data": [{"index": 0, "embedding": [0.5, -1, 2]}]}


def endpoint(protocol: str, **fields: Any) -> EndpointSource:
    return EndpointSource.model_validate({"url": "http://a", "model": "org/m", "protocol": protocol, **fields})


def test_a_tensor_is_asked_about_by_name() -> None:
    asked = endpoint("OpenInference", inputName="image", outputs=["scores"], parameters={"priority": 1})
    request = request_for(asked, np.arange(4, dtype=np.float32).reshape(2, 2))
    head, data = request.payload.body[:-16], request.payload.body[-16:]
    assert request.path == "/v2/models/org%2Fm/infer"
    assert json.loads(head) == {
        "inputs": [
            {"name": "image", "shape": [1, 2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}},
        ],
        "outputs": [{"name": "scores"}],
        "parameters": {"priority": 1, "binary_data_output": True},
    }
    assert np.frombuffer(data, np.float32).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("protocol", "want_path", "want_body"),
    [
        pytest.param(
            "OpenAIChat",
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Ist das Ärger?"}], "model": "org/m", "max_tokens": 8},
            id="chat",
        ),
        pytest.param(
            "OpenAIEmbeddings",
            "/v1/embeddings",
            {"input": "Ist das Ärger?", "model": "org/m", "max_tokens": 8},
            id="embeddings",
        ),
    ],
)
def test_a_text_is_asked_about_in_openais_api(protocol: str, want_path: str, want_body: dict[str, Any]) -> None:
    request = request_for(endpoint(protocol, parameters={"max_tokens": 8, "model": "another"}), TEXT)
    assert (request.path, json.loads(request.payload.body)) == (want_path, want_body)


def test_the_answer_of_a_chat_is_a_string() -> None:
    (text,) = tensors_of(endpoint("OpenAIChat"), {}, json.dumps(CHAT).encode())
    assert (text.dtype, text.tolist()) == (np.dtype(object), ["Ja, Ärger.".encode()])


def test_the_answer_of_embeddings_is_a_vector() -> None:
    (vector,) = tensors_of(endpoint("OpenAIEmbeddings"), {}, json.dumps(EMBEDDINGS).encode())
    assert (vector.dtype, vector.tolist()) == (np.float32, [0.5, -1, 2])


@pytest.mark.parametrize(
    ("protocol", "body", "want_words"),
    [
        pytest.param("OpenAIChat", {"choices": []}, "choices", id="no choice"),
        pytest.param("OpenAIChat", {"choices": [{"message": {"content": None}}]}, "content", id="a call of a tool"),
        pytest.param("OpenAIEmbeddings", {"data": EMBEDDINGS["data"] * 2}, "data", id="two vectors"),
        pytest.param("OpenAIEmbeddings", {"data": [{"embedding": "AAAA"}]}, "embedding", id="base64"),
        pytest.param("OpenAIEmbeddings", [], "not an answer of OpenAIEmbeddings", id="a list"),
    ],
)
def test_another_answer_is_refused_with_its_place(protocol: str, body: Any, want_words: str) -> None:
    with pytest.raises(AnswerError, match=want_words):
        tensors_of(endpoint(protocol), {}, json.dumps(body).encode())


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(AnswerError, match="not UTF-8"):
        request_for(endpoint("OpenAIChat"), np.array([b"\xff"], object))
