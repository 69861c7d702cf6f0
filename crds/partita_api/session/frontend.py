"""The processes that take a session's requests, and their own ports."""

from typing import ClassVar

from pydantic import Field

from partita_api.meta import Rule, SpecModel, is_unset
from partita_api.session.request_log import RequestLog


class Frontend(SpecModel):
    """How clients reach the session."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "frontend.httpPort and frontend.grpcPort must differ, or be 0",
            lambda frontend: not frontend.http_port or frontend.http_port != frontend.grpc_port,
            "!has(self.httpPort) || !has(self.grpcPort) || self.httpPort == 0 || self.httpPort != self.grpcPort",
        ),
        Rule(
            "several frontends may share a node; with frontend.replicas above 1, frontend.httpPort and "
            "frontend.grpcPort must be 0, which takes a free port",
            lambda frontend: frontend.replicas == 1 or not (frontend.http_port or frontend.grpc_port),
            "!has(self.replicas) || self.replicas == 1 || ((!has(self.httpPort) || self.httpPort == 0) && "
            "(!has(self.grpcPort) || self.grpcPort == 0))",
        ),
    )

    replicas: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Processes that take requests. One frontend schedules by itself; several frontends share a "
        "scheduler process. Use several if requests are too many or too large for one process.",
    )
    http_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="Port of the Open Inference Protocol over HTTP on the frontend's node, without Serve's proxy. "
        "0: a free port. The address is in status.httpAddress.",
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="Port of the Open Inference Protocol over gRPC on the frontend's node. 0: a free port. "
        "Default: no gRPC. The address is in status.grpcAddress.",
    )
    request_log: RequestLog | None = Field(
        default=None,
        exclude_if=is_unset,
        description="Where a sample of the requests and answers is sent. Default: nowhere.",
    )
