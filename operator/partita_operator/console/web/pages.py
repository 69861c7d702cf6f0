"""HTML from views, by templates that escape everything."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from partita_operator.console.views.sessions import SessionQuery
from partita_operator.reconcile.reasons import meaning_of

UNKNOWN: Final = "–"


def environment() -> Environment:
    """The templates, those of `drawing` among them."""
    made = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("partita_operator.console.web", "templates"),
                PackageLoader("partita_operator.console.drawing", "."),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "percent": percent, "ms": milliseconds, "money": money}
    made.globals |= {
        "meaning_of": meaning_of,
        "session_path": session_path,
        "pool_path": pool_path,
        "plan_path": plan_path,
        "sessions_path": sessions_path,
    }
    return made


def render(templates: Environment, template: str, now: datetime, **data: Any) -> str:
    """A page at this time."""
    return templates.get_template(f"{template}.html.j2").render(ago=partial(ago, now), **data)


def session_path(namespace: str, name: str) -> str:
    """The address of a session's page."""
    return f"/sessions/{quote(namespace, safe='')}/{quote(name, safe='')}"


def plan_path(namespace: str, session: str, plan: str) -> str:
    """The address of a plan's page."""
    return f"{session_path(namespace, session)}/plans/{quote(plan, safe='')}"


def pool_path(name: str) -> str:
    """The address of a pool's page."""
    return f"/pools/{quote(name, safe='')}"


def sessions_path(query: SessionQuery, **changes: Any) -> str:
    """The address of the sessions of a query with these changes; it begins at the first page unless that is one."""
    values: Mapping[str, Any] = {
        "q": query.text,
        "namespace": query.namespace,
        "state": query.state or "",
        "page": 1,
        **changes,
    }
    given = {name: str(value) for name, value in values.items() if value not in ("", None, 1)}
    return f"/?{urlencode(given)}#sessions" if given else "/#sessions"


def number(value: float | None, decimals: int = 1) -> str:
    """A number without needless zeros."""
    return UNKNOWN if value is None else f"{round(value, decimals):,}".removesuffix(".0")


def percent(fraction: float | None, decimals: int = 1) -> str:
    """A fraction of 1 as a percentage."""
    return UNKNOWN if fraction is None else f"{number(fraction * 100, decimals)} %"


def milliseconds(value: float | None) -> str:
    """A time in milliseconds."""
    return UNKNOWN if value is None else f"{value:,.0f} ms" if value >= 100 else f"{number(value)} ms"


def money(value: float | None) -> str:
    """A price."""
    return UNKNOWN if value is None else f"{value:,.2f}"


def ago(now: datetime, moment: datetime | str | None) -> str:
    """How long ago something was, in words; the text itself if it is no time."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return str(moment)
    if moment is None:
        return UNKNOWN
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    seconds = (now - moment).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"
