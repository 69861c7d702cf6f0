"""A module that another server answers, such as Triton or vLLM: where it is, and what it is asked."""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from partita_api.fields.arguments import BOUNDS, Arguments
from partita_api.fields.url import URL_PATTERN
from partita_api.meta import Rule, SpecModel


class EndpointProtocol(StrEnum):
    """What an endpoint speaks."""

    OPEN_INFERENCE = "OpenInference"
    OPENAI_CHAT = "OpenAIChat"
    OPENAI_EMBEDDINGS = "OpenAIEmbeddings"

    @property
    def takes_text(self) -> bool:
        """Whether a sample is one string, rather than a tensor."""
        return self is not EndpointProtocol.OPEN_INFERENCE


class EndpointSource(SpecModel):
    """A server that the user runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "inputName and outputs are names of tensors, and need protocol OpenInference",
            lambda endpoint: not endpoint.protocol.takes_text or (endpoint.input_name is None and not endpoint.outputs),
            "!has(self.protocol) || self.protocol == 'OpenInference' || "
            "(!has(self.inputName) && (!has(self.outputs) || size(self.outputs) == 0))",
        ),
    )

    url: str = Field(
        max_length=512,
        pattern=URL_PATTERN,
        description="Base URL, such as http://triton.models.svc:8000. The platform says which URLs are allowed "
        "(models.allowedEndpoints of the chart).",
    )
    protocol: EndpointProtocol = Field(
        default=EndpointProtocol.OPEN_INFERENCE,
        description="OpenInference: POST v2/models/MODEL/infer with binary tensors (Triton, KServe, Partita). "
        "OpenAIChat: POST v1/chat/completions; the answer is a string. OpenAIEmbeddings: POST v1/embeddings; the "
        "answer is a vector.",
    )
    model: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:\-]*(/[A-Za-z0-9][A-Za-z0-9._:\-]*)*$",
        description="Name of the model on that server.",
    )
    input_name: str | None = Field(
        default=None, max_length=253, description="Name of the input tensor there. Default: input."
    )
    outputs: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="Names of the output tensors that are asked for, in the order in which modules downstream see "
        "them. Default: all, in the order of the answer.",
    )
    parameters: Arguments = Field(
        default={},
        description="More fields of a request: of its parameters (OpenInference), or of its body, such as max_tokens "
        f"(OpenAI). {BOUNDS[0].upper()}{BOUNDS[1:]}.",
    )
    token_variable: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable of the frontends with a bearer token for the server, which podTemplate can "
        "take from a Secret. Default: no token.",
    )
    max_millis: int = Field(
        default=1000,
        ge=1,
        le=600_000,
        description="Milliseconds of the SLO that are reserved for one call. With rate.source Observed, the measured "
        "99th percentile once that is lower.",
    )
    max_concurrent: int = Field(
        default=64, ge=1, le=4096, description="Most calls that one frontend has in progress; others wait."
    )
