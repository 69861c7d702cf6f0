"""Settings of request logs: where frontends may send what sessions' clients ask and get."""

from typing import Annotated

from pydantic import Field

from partita_api.fields.url import BEGINNING_PATTERN, begins_with_one_of, server_of
from partita_api.session.request_log import RequestLog
from partita_operator.settings.pod_templates import Patterns, allows
from partita_operator.settings.section import Section


class RequestLogSettings(Section):
    """Where the frontends of sessions may send requests and answers (spec.frontend.requestLog)."""

    allowed_sinks: tuple[Annotated[str, Field(pattern=BEGINNING_PATTERN)], ...] = Field(
        default=(),
        description="Beginnings of URLs, up to a slash (http://collector.logs.svc/), of sinks that sessions may name. "
        "Frontends send them clients' requests, with what the frontends' network allows. Empty: none.",
    )

    allowed_secrets: Patterns = Field(
        default=("partita-request-log",),
        description="Names of Secrets with credentials of sinks that sessions may name. Their frontends' pods mount "
        "them, where code of the session can read them. `*` stands for any characters. Empty: none.",
    )

    def problem(self, requested: RequestLog | None) -> str:
        """Why a session's request log is forbidden; empty if it is allowed."""
        if requested is None:
            return ""
        if not begins_with_one_of(self.allowed_sinks, requested.sink):
            return (
                f"spec.frontend.requestLog: sink {requested.sink} is not a URL that the platform allows "
                f"({', '.join(self.allowed_sinks) or 'none'}); use one of those, or add {server_of(requested.sink)} to "
                "requestLog.allowedSinks of the chart"
            )
        if requested.authorization is not None and not allows(
            self.allowed_secrets, name := requested.authorization.secret_name
        ):
            return (
                f"spec.frontend.requestLog.authorization: Secret {name} is not one that the platform allows "
                f"({', '.join(self.allowed_secrets) or 'none'}); use one of those, or add {name} to "
                "requestLog.allowedSecrets of the chart"
            )
        return ""

    def granted(self, requested: RequestLog | None) -> RequestLog | None:
        """The request log that frontends get; None if it is forbidden."""
        return None if self.problem(requested) else requested
