"""What the API server refuses a request with."""

from http import HTTPStatus
from typing import Any, Final

_REASONS: Final = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.GONE: "Expired",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UnsupportedMediaType",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid",
    HTTPStatus.INSUFFICIENT_STORAGE: "InternalError",
}


class RefusedError(Exception):
    """A request that is not carried out; nothing has changed."""

    def __init__(self, status: HTTPStatus, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason or _REASONS.get(status, "InternalError")

    def document(self) -> dict[str, Any]:
        """The Status object of the Kubernetes API."""
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": int(self.status),
        }
