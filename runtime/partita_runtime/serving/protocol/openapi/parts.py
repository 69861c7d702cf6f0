"""The parts that the OpenAPI document is made of. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

Json = dict[str, Any]

ERRORS: Final[Mapping[int, str]] = {
    400: "The request is malformed, or its tensors do not fit.",
    404: "Another model or version than the session's.",
    406: "An event stream answers other requests than this one.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    500: "A model or function failed.",
    503: "There are too many requests, or replicas are missing; try again after Retry-After seconds.",
    504: "The request could not meet its deadline.",
}
"""The errors of an inference request, by HTTP status."""


def reading(summary: str, schema: Json, *errors: int) -> Json:
    """A path that is read, with JSON of this schema."""
    described = answer(summary, {"application/json": {"schema": schema}})
    return {"get": operation(summary, {"200": described}, *errors)}


def operation(summary: str, answers: Json, *errors: int) -> Json:
    """An operation with these answers, and with errors by their HTTP status."""
    refused = {"application/json": {"schema": ref("Error")}}
    return {
        "summary": summary,
        "responses": answers | {str(status): answer(ERRORS[status], refused) for status in errors},
    }


def answer(description: str, content: Json) -> Json:
    """An answer with content by its type."""
    return {"description": description, "content": content}


def object_of(required: Iterable[str] = (), **properties: Json) -> Json:
    """The schema of an object."""
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": [*required]} if required else schema


def array_of(items: Json) -> Json:
    """The schema of an array."""
    return {"type": "array", "items": items}


def ref(schema: str) -> Json:
    """The document's schema of this name."""
    return {"$ref": f"#/components/schemas/{schema}"}
