"""Plans of the SDK without a cluster: found, explained, printed, and refused with what would help."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import pool, profile, session

import partita
from partita.html import html_lines, html_table
from partita_api.gpupool import GPUPool
from partita_api.profile import Profile
from partita_planner.problem import NoPlanReason

POOLS = [partita.pool("a100", count=4, price_per_hour=3), partita.pool("t4", count=8, price_per_hour="0.35")]
MILLISECONDS = {"classifier": {"a100": {1: 2, 8: 6}, "t4": {1: 8, 8: 40}}}


def shop(**spec: Any) -> partita.Session:
    made = partita.Session("shop", slo_ms=200, requests_per_second=50, **spec)
    return made.add_model("classifier", entrypoint="shop.models:classifier", input=partita.Tensor([3, 96, 96]))


def planned(made: partita.Session) -> partita.Plan:
    return made.plan(pools=POOLS, profiles=made.assumed_profiles(MILLISECONDS))


def test_a_plan_says_what_it_costs_and_uses() -> None:
    plan = planned(shop())

    assert (plan.gpus, plan.cost_per_hour) == ({"t4": 1}, 0.35)
    assert plan.throughput >= 50
    assert "optimal" in plan.explanation
    assert plan.spec.session.name == "shop"


def test_another_slo_costs_more() -> None:
    tight, loose = planned(shop().copy(slo_ms=8)), planned(shop())

    assert (tight.gpus, tight.cost_per_hour) == ({"a100": 1}, 3.0)
    changes = {(change.what, change.before, change.after) for change in loose.changes_to(tight)}
    assert ("cost an hour", "0.35", "3") in changes
    assert loose.changes_to(loose) == ()


def test_a_plan_with_the_session_s_backend_takes_assumed_profiles() -> None:
    assert planned(shop(execution={"backend": "Inductor"})).gpus == {"t4": 1}


def test_no_plan_says_what_would_make_one_possible() -> None:
    with pytest.raises(partita.NoPlanError, match="default/shop: no plan") as refused:
        planned(shop().copy(slo_ms=2))

    assert refused.value.outcome.reason is NoPlanReason.SLO_TOO_TIGHT
    assert refused.value.outcome.smallest_slo_ms == 3


def test_pools_and_profiles_from_files(tmp_path: Path) -> None:
    """As `partita plan` reads them."""
    made, found = session("traffic").slo(200).rate(100).model("detector").build(), pool("fast").gpus(8).build()
    documents = [d.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"}) for d in (found, made)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/detector.json").write_text(
        profile("detector").on("fast").linear(1000, 5000).build().model_dump_json(by_alias=True, exclude_none=True)
    )

    plan = partita.Session.from_file(tmp_path / "all.yaml").plan(pools=tmp_path, profiles=str(tmp_path / "profiles"))

    assert set(plan.gpus) == {"fast"}


@pytest.mark.parametrize(
    ("pools", "profiles", "says"),
    [
        pytest.param("nowhere.yaml", [], "nowhere.yaml", id="no file"),
        pytest.param(POOLS, "empty", "partita profile", id="no profiles"),
        pytest.param("wrong.yaml", [], "spec.count", id="a wrong pool"),
    ],
)
def test_wrong_files_are_named(
    pools: list[GPUPool] | str,
    profiles: list[Profile] | str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.yaml").write_text(
        "{apiVersion: partita.dev/v1alpha1, kind: GPUPool, metadata: {name: a}, spec: {count: x}}"
    )

    with pytest.raises(partita.PartitaError, match=says):
        shop().plan(pools=pools, profiles=profiles)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"count": -1, "price_per_hour": 1}, "pool t4 is wrong: spec.count:", id="count"),
        pytest.param({"count": 1, "price_per_hour": "cheap"}, "spec.pricePerHour:", id="price"),
        pytest.param({"count": 1, "price_per_hour": 1, "speed": 2}, "spec.speed:", id="unknown field"),
    ],
)
def test_a_wrong_pool_is_refused_by_its_fields(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(partita.PartitaError, match=re.escape(says)):
        partita.pool("t4", **spec)


def test_latencies_of_unknown_modules_are_refused() -> None:
    with pytest.raises(partita.PartitaError, match="has no model detector; its models are: classifier"):
        shop().assumed_profiles({"detector": {"t4": {1: 5}}})


class Texts(HTMLParser):
    """The texts of a document, by the tag around them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.append((self.open[-1], data))

    def of(self, tag: str) -> list[str]:
        return [text for around, text in self.found if around == tag]


def test_a_plan_is_a_table_as_text_and_in_notebooks() -> None:
    plan = planned(shop())
    shown, html = str(plan), Texts(plan._repr_html_())

    assert repr(plan) == shown
    assert "\x1b" not in shown, "no colors"
    for words in (shown, " ".join(text for _, text in html.found)):
        assert all(word in words for word in ("default/shop", "classifier", "t4", "cost 0.35 an hour", "optimal"))
    assert html.of("th")[:2] == ["module", "budget ms"]
    assert html.of("td")[0] == "classifier"


def test_names_are_text_in_html() -> None:
    """Names of pools and of sessions come from manifests of others."""
    evil = "<script>alert(1)</script>[bold]&"
    made = planned(shop())
    document = made.spec.model_dump(mode="json", by_alias=True)
    for module in document["modules"]:
        module["pipelines"][0]["stages"][0]["pool"] = evil
    document["solution"]["explanation"] = evil
    metadata = made.session.metadata.model_copy(update={"name": evil})
    plan = partita.Plan(
        made.session.model_copy(update={"metadata": metadata}), type(made.spec).model_validate(document)
    )

    html = plan._repr_html_()

    assert "<script>" not in html
    assert Texts(html).of("td").count(evil) == 1
    assert evil in Texts(html).of("p")
    assert evil in "".join(Texts(html).of("caption"))
    assert evil in str(plan).replace("\n", "")


def test_html_of_nothing() -> None:
    from rich.table import Table

    assert Texts(html_table(Table("only"))).found == [("th", "only")]
    assert html_lines("") == "<p></p>"
