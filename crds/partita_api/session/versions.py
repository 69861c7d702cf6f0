"""Versions of a session beside each other: other sessions that answer some of its requests."""

import re
from decimal import Decimal
from operator import not_
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from partita_api.fields.quantity import Percent, Quantity
from partita_api.meta import MAX_SESSION_NAME, NAME_PATTERN, Rule, SpecModel, StatusModel, Timestamp

OWN_VERSION: Final = "1"
"""The version that a session is itself."""
MAX_VERSIONS: Final = 8
_SPOKEN_FOR: Final = (
    r"^(authorization|ce-.*|connection|content-.*|cookie|expect|host|inference-header-content-length|keep-alive|"
    r"partita-.*|te|traceparent|tracestate|trailer|transfer-encoding|upgrade|x-forwarded-.*)$"
)
"""Headers with a meaning of their own, in lower case."""


class VersionHeader(SpecModel):
    """A header of HTTP by which clients choose a version."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "header.name must not be a header with a meaning of its own; choose another one, such as x-variant",
            lambda header: re.match(_SPOKEN_FOR, header.name.lower()) is None,
            f"!self.name.lowerAscii().matches('{_SPOKEN_FOR}')",
        ),
    )

    name: str = Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$",
        description="Name of the header, such as x-variant.",
    )
    value: str = Field(
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="Value that the header must have, exactly.",
    )

    @property
    def identity(self) -> tuple[str, str]:
        """What makes it differ from other headers: names have no case."""
        return self.name.lower(), self.value


class Shadow(SpecModel):
    """Copies of requests, whose answers are compared with the session's own and never returned."""

    share: Percent = Field(
        default=Percent("100%"),
        json_schema_extra={"maxLength": 9},
        description="Share of the session's own requests that the version gets copies of.",
    )
    absolute_tolerance: Quantity = Field(
        default=Quantity("0.001"),
        description="Fractional numbers of two answers may differ by this, and by relativeTolerance in addition.",
    )
    relative_tolerance: Quantity = Field(
        default=Quantity("0.001"),
        description="Fractional numbers may also differ by this fraction of the session's own number.",
    )


class Promotion(SpecModel):
    """The way of a version to its share, in steps."""

    steps_percent: tuple[Annotated[int, Field(ge=1, le=99)], ...] = Field(
        min_length=1,
        max_length=8,
        description="Shares in percent before the version has its whole share, the smallest first, such as [5, 25].",
    )
    minutes: int = Field(
        default=10,
        ge=1,
        le=10_080,
        description="Minutes of each step. The next one begins once the version has answered requests and met its SLO "
        "for as long.",
    )

    @property
    def shares(self) -> tuple[Percent, ...]:
        """The shares of the steps."""
        return tuple(Percent(f"{step}%") for step in self.steps_percent)


def _steps_lead_to_share(version: "Version") -> bool:
    if version.promotion is None:
        return True
    steps = version.promotion.steps_percent
    return [*steps] == sorted(steps) and steps[-1] < Decimal(version.share.removesuffix("%"))


class Version(SpecModel):
    """One version: a session of the same namespace."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            'version "1" is the session itself; give the other version another name',
            lambda version: version.name != OWN_VERSION,
            f"self.name != '{OWN_VERSION}'",
        ),
        Rule(
            "a version with shadow answers no requests; remove its share and header",
            lambda version: version.shadow is None or (version.share.fraction == 0 and version.header is None),
            "!has(self.shadow) || (!has(self.header) && (!has(self.share) || "
            "double(self.share.replace('%', '')) == 0.0))",
        ),
        Rule(
            "promotion.stepsPercent must be below share, the smallest first",
            _steps_lead_to_share,
            "!has(self.promotion) || (has(self.share) && self.promotion.stepsPercent.isSorted() && "
            "double(self.promotion.stepsPercent[size(self.promotion.stepsPercent) - 1]) < "
            "double(self.share.replace('%', '')))",
        ),
    )

    name: str = Field(
        min_length=1,
        max_length=32,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description='Name of the version, as in v2/models/SESSION/versions/NAME. "1" is the session itself.',
    )
    session: str = Field(
        min_length=1,
        max_length=MAX_SESSION_NAME,
        pattern=NAME_PATTERN,
        description="The InferenceSession of the same namespace that is this version. It needs the same engine.",
    )
    share: Percent = Field(
        default=Percent("0%"),
        json_schema_extra={"maxLength": 9},
        description='Share of the requests that choose no version, such as "10%". The rest stays with the session '
        "itself. A version that is not ready gets none.",
    )
    withdraw_if_slo_missed: bool = Field(
        default=False,
        description="Take the version's share away once its session's condition SLOMet is False. The share comes back "
        "when the spec of this session changes. Always so with promotion.",
    )
    promotion: Promotion | None = Field(
        default=None, description="Give the version its share in steps. Default: at once."
    )
    header: VersionHeader | None = Field(
        default=None, description="Requests with this header go to the version. Default: none do."
    )
    shadow: Shadow | None = Field(
        default=None,
        description="Send the version copies of requests, and compare the answers. Default: no copies.",
    )


def _shares_fit(spec: Any) -> bool:
    return sum(Decimal(version.share.removesuffix("%")) for version in spec.versions) <= 100


def _headers_differ(spec: Any) -> bool:
    headers = [version.header.identity for version in spec.versions if version.header is not None]
    return len(set(headers)) == len(headers)


def _names_differ(spec: Any) -> bool:
    names = [version.name for version in spec.versions]
    return len(set(names)) == len(names)


_WITHOUT: Final = "!has(self.versions) || "
VERSION_RULES: Final = (
    Rule("versions need different names", _names_differ, None),
    Rule(
        "the shares of versions must not be more than 100% together",
        _shares_fit,
        # Shares have four decimals, and sums of doubles are not exact.
        f"{_WITHOUT}self.versions.map(v, has(v.share) ? double(v.share.replace('%', '')) : 0.0).sum() <= 100.00001",
    ),
    Rule(
        "two versions must not have the same header",
        _headers_differ,
        f"{_WITHOUT}self.versions.all(v, !has(v.header) || self.versions.exists_one(w, has(w.header) && "
        "w.header.name.lowerAscii() == v.header.name.lowerAscii() && w.header.value == v.header.value))",
    ),
)
"""Rules of the whole spec."""

Versions = Annotated[
    tuple[Version, ...],
    Field(
        max_length=MAX_VERSIONS,
        exclude_if=not_,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Other sessions of the namespace that answer some of this session's requests by HTTP: those that "
        "name a version in their path or by a header, and a share of the others. Changes count at once, without "
        "another plan.",
    ),
]


class VersionStatus(StatusModel):
    """One version as it is now."""

    name: str = Field(description="Name of the version.")
    session: str = Field(description="The session that it is.")
    ready: bool = Field(description="Whether it gets its share of the requests.")
    share: str = Field(description="Share of the requests that choose no version, as it is now.")
    copies: str | None = Field(default=None, description="Share of the requests that it gets copies of, as it is now.")
    promoted: str | None = Field(default=None, description="With promotion: the share of the step that it has reached.")
    promoted_time: Timestamp | None = Field(default=None, description="When this step began.")
    withdrawn_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation for which the share was taken away."
    )
    message: str = Field(default="", max_length=256, description="Why it is not ready.")
