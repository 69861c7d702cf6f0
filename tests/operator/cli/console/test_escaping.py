"""No text of users becomes markup, wherever a page shows it."""

from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel
from tests.operator.cli.console.cluster_objects import condition, typical

from partita_api.pipelineplan import Constraint, ConstraintType
from partita_api.profile import ProfilingProgress
from partita_api.session.plan_changes import PlannedChange, PlanPreview
from partita_operator.console.reading.snapshot import ClusterSnapshot, EventLine, ObjectEvents
from partita_operator.console.views.findings import condition_rows
from partita_operator.console.views.plans import AlternativeRow, ConstraintRow
from partita_operator.console.views.pools import pool_page, pool_rows
from partita_operator.console.views.session_page import plan_page, session_page
from partita_operator.console.views.sessions import SessionQuery, sessions_part
from partita_operator.console.web.pages import environment, render

HARMLESS = "plain,text"
HOSTILE = '"\'><script>alert(1)</script><img src=x onerror=alert(1)>,&lt;/svg></table>{{ 7 * 7 }} onfocus=alert(1) x="'
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Structure(HTMLParser):
    """The tags of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))


def with_text(value: Any, text: str) -> Any:
    """The view with this text in place of each text."""
    if type(value) is str:
        return text
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: with_text(getattr(value, f.name), text) for f in fields(value) if f.name != "cluster"}
        return replace(value, **changed)
    if isinstance(value, BaseModel):
        return value.model_copy(
            update={name: with_text(getattr(value, name), text) for name in type(value).model_fields}
        )
    if isinstance(value, tuple):
        return tuple(with_text(item, text) for item in value)
    if isinstance(value, dict):
        return {key: with_text(item, text) for key, item in value.items()}
    return value


SNAPSHOT = ClusterSnapshot(
    cluster=typical(),
    namespaces=("default", "other"),
    narrowed=True,
    seen_at=NOW,
    problem="The API server does not answer.",
    refused={"pools": "forbidden", "plans of namespace other": "forbidden"},
)
EVENTS = ObjectEvents((EventLine("2026-01-01T00:00:00Z", "Warning", "Failed", "message", 2),), "They cannot be read.")


def filled(view: Any) -> Any:
    """The view with everything that a page can show."""
    rows = condition_rows((condition("Ready", "False", "SLOTooTight", "message"),), 2)
    change = PlannedChange(where="pool fast", what="accelerators", before="1", after=None)
    preview = PlanPreview(
        plan="traffic-3", reason="OutsideWindow", not_before="2026-02-01T00:00:00Z", cost_per_hour="1", throughput="2",
        changes=(change,),
    )  # fmt: skip
    plan = replace(
        view.plan,
        constraints=(ConstraintRow("accelerators", True, "0.5", "planned again"),),
        alternatives=(AlternativeRow("whole", "3", "summary", True),),
        explanation=("line",),
        conditions=rows,
    )
    run = ProfilingProgress(
        module="detector", pool="fast", key="1", attempt=1, phase="Waiting", message="It failed.",
        last_transition_time="2026-01-01T00:00:00Z",
    )  # fmt: skip
    own = {
        "preview": preview,
        "profiling": (run,),
        "complaint": "The spec is wrong.",
        "recommendation": "More.",
        "conditions": rows,
    }
    return replace(view, plan=plan, **{name: value for name, value in own.items() if hasattr(view, name)})


def pages() -> dict[str, dict[str, Any]]:
    """The data of each template."""
    found = SNAPSHOT.cluster
    session, plan = session_page(SNAPSHOT, "default/traffic"), plan_page(SNAPSHOT, "default/traffic", "traffic-2")
    pool = pool_page(SNAPSHOT, "slow")
    assert pool is not None
    return {
        "overview": {
            "pools": pool_rows(found),
            "sessions": sessions_part(found.sessions.values(), SessionQuery(namespace="default")),
        },
        "session": {"session": filled(session), "events": EVENTS},
        "plan": {"page": filled(plan)},
        "pool": {"pool": replace(pool, quotas=(("team", 2, 1),), complaint="The spec is wrong."), "events": EVENTS},
        "error": {"title": "Not Found", "message": "There is no such session."},
    }


@pytest.mark.parametrize("template", list(pages()))
def test_texts_do_not_change_the_structure_of_a_page(template: str) -> None:
    def page(text: str) -> str:
        data = {name: with_text(value, text) for name, value in pages()[template].items()}
        snapshot = with_text(SNAPSHOT, text)
        return render(environment(), template, NOW, snapshot=snapshot, server=text, **data)

    hostile, harmless = Structure(page(HOSTILE)), Structure(page(HARMLESS))

    assert hostile.tags == harmless.tags
    assert sum(tag[0] == "script" for tag in hostile.tags) == 1
    assert not [tag for tag in hostile.tags for name in tag[1:] if name.startswith("on") or name == "style"]
    assert "7 * 7" in page(HOSTILE), "text is not a template"


def test_every_kind_of_view_is_tested() -> None:
    """Each text of a page is found: with all of them replaced, none of the objects' own is left."""
    for template, data in pages().items():
        if template == "error":
            continue
        replaced = {name: with_text(value, HARMLESS) for name, value in data.items()}
        page = render(environment(), template, NOW, snapshot=with_text(SNAPSHOT, HARMLESS), server=HARMLESS, **replaced)
        assert "traffic" not in page
        assert "detector" not in page


def test_addresses_have_no_scheme_of_users() -> None:
    """A URL of a status is text, not a link: it may be anything."""
    found = typical()
    session = found.sessions["default/traffic"]
    status = session.status.model_copy(update={"url": "javascript:alert(1)"})
    known = ClusterSnapshot(
        cluster=replace(found, sessions={session.key: session.model_copy(update={"status": status})})
    )
    page = session_page(known, session.key)
    html = render(environment(), "session", NOW, snapshot=known, server="", session=page, events=EVENTS)

    assert "javascript:alert(1)" in html
    assert 'href="javascript' not in html


def test_constraints_name_pools_as_text() -> None:
    of_pool = Constraint(type=ConstraintType.GPUS, pool=HOSTILE, binding=True)
    found = typical()
    plan = found.plans["default/traffic-2"]
    solution = plan.spec.solution.model_copy(update={"constraints": (of_pool,)})
    hostile = plan.model_copy(update={"spec": plan.spec.model_copy(update={"solution": solution})})
    known = ClusterSnapshot(cluster=replace(found, plans={**found.plans, "default/traffic-2": hostile}))
    page = plan_page(known, "default/traffic", "traffic-2")
    html = render(environment(), "plan", NOW, snapshot=known, server="", page=page)

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
