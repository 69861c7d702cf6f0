"""The request log of a session: which requests and answers its frontends send to a sink."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from partita_api.fields.quantity import Percent
from partita_api.fields.url import URL_PATTERN
from partita_api.meta import SpecModel

MAX_BODY_BYTES: Final = 16 * 1024 * 1024


class RequestLogMode(StrEnum):
    """Which events are sent."""

    ALL = "All"
    REQUEST = "Request"
    RESPONSE = "Response"


class RequestLog(SpecModel):
    """A sink of events about a sample of the session's inference requests."""

    sink: str = Field(
        max_length=512,
        pattern=URL_PATTERN,
        description="URL that receives a CloudEvent by POST for each request and each answer, as KServe's logger sends "
        "them. The platform says which URLs are allowed (requestLog.allowedSinks of the chart).",
    )
    mode: RequestLogMode = Field(
        default=RequestLogMode.ALL, description="All: requests and answers. Request, Response: only these."
    )
    sample: Percent = Field(
        default=Percent("100%"), description='Share of requests that are sent, chosen at random, such as "1%".'
    )
    max_body_bytes: int = Field(
        default=1024 * 1024,
        ge=0,
        le=MAX_BODY_BYTES,
        description="Largest body that an event has. The event of a larger one says only how many bytes it had.",
    )
