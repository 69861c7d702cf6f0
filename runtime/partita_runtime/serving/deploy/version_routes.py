"""Where frontends send the requests for other versions of their session, as data in their `user_config`."""

from typing import Final

from partita_api.meta import SpecModel
from partita_api.session.versions import VersionHeader

FORWARDED: Final = "partita-forwarded"
"""Header of a request that a frontend has sent on. No frontend sends it on again."""
ANSWERED_BY: Final = "partita-version"
"""Header of an answer that another version has given, with its name."""


class ShadowRoute(SpecModel):
    """A version that gets copies of requests; its answers are compared with the session's own."""

    share: float
    """Share of the requests that are copied, from 0 to 1."""
    absolute: float
    relative: float
    """Fractional numbers are equal if they differ by at most `absolute` + `relative` of the session's own."""


class VersionRoute(SpecModel):
    """One version: a session that answers requests in place of this one."""

    name: str
    session: str
    """The session's name, which is the model's name there."""
    url: str = ""
    """The session's base URL; empty: nothing is sent there."""
    problem: str = ""
    """Why it gets no share of the requests, in words; empty if it gets one."""
    share: float = 0.0
    """Share of the requests that choose no version, from 0 to 1."""
    header: VersionHeader | None = None
    """Requests with this header go to the version."""
    shadow: ShadowRoute | None = None
    """What it gets copies of; it answers no clients but those that name it in their path."""
    answer_seconds: float = 60.0
    """How long an answer may take."""

    @property
    def label(self) -> str:
        """The version, for messages."""
        return f"version {self.name!r} (session {self.session})"
