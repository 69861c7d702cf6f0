"""The settings of a frontend."""

from typing import Self

from pydantic import model_validator

from partita_api.meta import SpecModel
from partita_runtime.serving.protocol.images import MAX_IMAGE_BYTES
from partita_runtime.serving.protocol.oip import MAX_JSON_BYTES
from partita_runtime.serving.session.waiting_room import MOST_HELD


class FrontendSettings(SpecModel):
    """The settings of a frontend. They never change while it runs."""

    function_processes: int = 2
    """Processes for CPU functions, if the session has functions."""
    max_request_bytes: int = 64 * 1024 * 1024
    """Largest request body."""
    max_json_bytes: int = MAX_JSON_BYTES
    """Most bytes of a request's JSON, and of a gRPC message besides raw tensors: other requests wait for the parser."""
    image_threads: int = 2
    """Threads that decode images."""
    max_image_bytes: int = MAX_IMAGE_BYTES
    """Most memory that the decoding of one image may take: of all together, `image_threads` times as much."""
    max_reading_bytes: int = 256 * 1024 * 1024
    """Most bytes of all request bodies that have arrived in part. A request that would exceed it is refused."""
    body_seconds: float = 60.0
    """How long the client may take to send a request's body."""
    max_held_requests: int = MOST_HELD
    """Most requests that are held while a session that has scaled to zero has no replicas. `max_reading_bytes` bounds
    their bodies together with those that have arrived in part."""
    max_log_bytes: int = 32 * 1024 * 1024
    """Most bytes of events that wait for the sink of the request log, or are being sent. Others are dropped."""
    max_connections: int = 10_000
    """Most connections to the frontend's own HTTP port; never more than three quarters of the limit of open files."""
    trace_directory: str | None = None
    """Where to record the events and decisions of the scheduling core, for a replay. It grows without bound.

    The decisions of a coordinator, with several frontends, are not recorded.
    """
    switch_patience_seconds: float = 10.0
    """How long a pending plan that could serve waits for the rest of its replicas, while another plan serves."""

    reserved_order: bool = True
    """Whether replicas keep to what the scheduling core has reserved. Otherwise, they run and send batches at once."""

    @model_validator(mode="after")
    def _any_body_can_be_read(self) -> Self:
        if self.max_reading_bytes < self.max_request_bytes:
            raise ValueError(
                f"max_reading_bytes ({self.max_reading_bytes}) must be at least max_request_bytes "
                f"({self.max_request_bytes}); otherwise the largest request could never be read"
            )
        return self
