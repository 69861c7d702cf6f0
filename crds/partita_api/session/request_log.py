"""The request log of a session: which requests and answers its frontends send to a sink."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from partita_api.fields.quantity import Percent
from partita_api.fields.url import URL_PATTERN
from partita_api.meta import SpecModel, is_unset

MAX_BODY_BYTES: Final = 16 * 1024 * 1024


class RequestLogMode(StrEnum):
    """Which events are sent."""

    ALL = "All"
    REQUEST = "Request"
    RESPONSE = "Response"


class AuthorizationType(StrEnum):
    """How a sink learns who sends an event."""

    BEARER = "Bearer"
    BASIC = "Basic"


class SinkAuthorization(SpecModel):
    """The credentials of a sink, in a Secret. Frontends read them from a file, which Kubernetes keeps current."""

    type: AuthorizationType = Field(
        default=AuthorizationType.BEARER, description="Bearer: the key has a token. Basic: it has user:password."
    )
    secret_name: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Secret of the session's namespace. The platform limits the names (requestLog.allowedSecrets of "
        "the chart).",
    )
    key: str = Field(
        default="token",
        min_length=1,
        max_length=253,
        pattern=r"^[a-zA-Z0-9][-._a-zA-Z0-9]*$",
        description="Key of the Secret.",
    )


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
    authorization: SinkAuthorization | None = Field(
        default=None, exclude_if=is_unset, description="Credentials that events are sent with. Default: none."
    )
