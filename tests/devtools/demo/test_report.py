"""The report: well-formed, self-contained, and with every number that it is for."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.devtools.demo.demo_results import agreement, demo_result

from partita_devtools.demo.report.svg import VARIABLES
from partita_devtools.demo.report.write import render, write_report
from partita_devtools.demo.result import DemoResult, ReadPicture
from partita_operator.console.drawing.plan_figure import plan_diagram
from partita_runtime.load.report import summarize

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Outline(HTMLParser):
    """Checks that tags close, and gathers text, headings and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.misplaced: list[str] = []
        self.text: list[str] = []
        self.headings: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.text.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    return found


def words(page: str) -> str:
    return " ".join(" ".join(outline(page).text).split())


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return demo_result(emulated=False, verification=agreement())


@pytest.fixture(scope="module")
def page(result: DemoResult) -> str:
    return render(result)


def test_every_tag_is_closed_in_its_place(page: str) -> None:
    found = outline(page)

    assert (found.misplaced, found.open) == ([], [])
    assert found.headings[0] == "traffic"
    assert len(found.headings) == 13


def test_page_needs_no_other_file(page: str) -> None:
    references = [link for link in outline(page).links if not link.startswith("#")]

    assert references == ["result.json"]
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "<script" not in page


def test_figures_are_valid_svg_in_the_colours_of_the_page(page: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)

    assert len(figures) == 9
    for figure in figures:
        root = ElementTree.fromstring(figure.replace("&ndash;", "-"))
        assert root.get("aria-label")
        assert len(list(root.iter())) > 20
    assert not any(colour in page for colour in VARIABLES)
    assert "#000000" not in page, "black would vanish on a dark page"


def test_variables_are_all_defined_for_light_and_dark(page: str) -> None:
    style = page[page.index("<style>") : page.index("</style>")]
    light, dark = style.split("prefers-color-scheme: dark")

    for name in {*re.findall(r"var\((--[a-z0-9-]+)\)", page)} - {"--font"}:
        assert f"{name}:" in light
        assert f"{name}:" in dark


@pytest.mark.parametrize(
    "want",
    [
        pytest.param("99.84 % of 15,000 requests within 400 ms", id="attainment"),
        pytest.param("The objective is met: 99% at 250 requests/s", id="objective"),
        pytest.param("The plan costs 3.31 an hour, 18% less than 4.05 an hour without partitioning", id="saving"),
        pytest.param("249.6/s", id="goodput"),
        pytest.param("busy time alone 2.74", id="occupancy cost"),
        pytest.param("31 s", id="time until ready"),
        pytest.param("4 requests, off by 0.43 % at most", id="verification"),
        pytest.param("l4-emulated: 2 of 6 accelerators at 0.71 an hour", id="accelerators"),
        pytest.param("2 × l4-emulated", id="stage in the diagram"),
        pytest.param("blocks 0–5 · 20.8 ms", id="blocks in the diagram"),
        pytest.param("p0 · batches of 6 · 210/s", id="pipeline in the diagram"),
        pytest.param("The detector binds", id="explanation"),
        pytest.param("no-partitioning 4.05", id="alternative"),
        pytest.param("nexus no plan", id="strategy without a plan"),
        pytest.param("double load 500/s for 30 s 15,000", id="phase"),
        pytest.param("200: 11,790, 503: 3,210", id="outcomes"),
        pytest.param("SLO 400 ms", id="SLO in the figure"),
        pytest.param("93.1% within 400 ms; the SLO is 99%.", id="condition message"),
        pytest.param("add 1 replica to detector/p0", id="autoscaler"),
        pytest.param("5,070", id="batches of one size"),
    ],
)
def test_page_says(page: str, want: str) -> None:
    assert want in words(page)


def test_missed_objective_and_different_answers_are_said_first() -> None:
    missed = demo_result(emulated=False, verification=agreement("request 2: vehicle is off by 31.00%"))
    late = replace(missed, phases=(missed.phases[1],))

    text = words(render(late))

    assert "The objective is missed: 99% at 250 requests/s" in text
    assert text.index("request 2: vehicle is off by 31.00%") < text.index("The plan traffic-7f3a91c2")


def test_emulated_run_says_so_and_claims_no_comparison() -> None:
    text = words(render(demo_result(emulated=True)))

    assert "emulated accelerators" in text
    assert "Equals whole models" not in text


def test_run_in_which_nothing_was_answered_still_has_a_report() -> None:
    whole = demo_result()
    silent = replace(whole.phases[0], report=summarize([], slo_s=0.4, duration_s=10.0))

    page = render(replace(whole, phases=(silent,), samples=(), timeline=()))

    assert "0.0/s" in words(page)
    assert outline(page).misplaced == []


def test_text_from_the_cluster_cannot_become_markup() -> None:
    whole = demo_result()
    change = replace(whole.timeline[0], message="<script>alert(1)</script>")

    assert "<script>" not in render(replace(whole, timeline=(change,)))


def test_same_result_gives_the_same_page(result: DemoResult, page: str) -> None:
    assert render(result) == page


def test_result_lies_beside_the_page(result: DemoResult, tmp_path: Path) -> None:
    path = write_report(result, tmp_path / "report")

    assert path == tmp_path / "report" / "index.html"
    document = json.loads((tmp_path / "report" / "result.json").read_text())
    assert document["plan"]["spec"]["cost"]["allocatedPerHour"] == "3.31"
    assert document["phases"][0]["report"]["requests"] == 15000
    assert len(document["samples"]) == 121


def test_diagram_puts_modules_in_the_order_of_the_dag_and_nothing_on_top_of_another(result: DemoResult) -> None:
    diagram = plan_diagram(result.session.spec, result.plan.spec, ("l4-emulated", "p4-emulated"))

    places = {card.name: (card.x, card.y, card.height) for card in diagram.cards}
    assert places["detector"][0] < places["crop"][0] < places["vehicle"][0] == places["person"][0]
    assert places["vehicle"][1] + places["vehicle"][2] <= places["person"][1]
    for card in diagram.cards:
        assert 0 <= card.y <= card.y + card.height <= diagram.height
        for box in (box for row in card.rows for box in row.boxes):
            assert card.x < box.x < box.x + box.width < card.x + card.width
            assert card.y < box.y < box.y + box.height < card.y + card.height
    assert len(diagram.arrows) == 3


PICTURES = (
    ReadPicture(
        "note",
        b"\x89PNG note",
        "rapidocr",
        ("two lines", "of text"),
        ("two lines", "of text"),
        ("two lines", "of text"),
    ),
    ReadPicture("receipt", b"\x89PNG receipt", "rapidocr", ("42.50 EUR",), ("42.50 FUR",), ("42.50 EUR",)),
)


def test_pictures_are_on_the_page_with_their_text_and_beside_it(result: DemoResult, tmp_path: Path) -> None:
    page = write_report(replace(result, pictures=PICTURES), tmp_path).read_text()

    assert "1 of 26 characters differ (3.85%)" in words(page)
    assert "42.50 EUR 42.50 FUR 42.50 EUR 1 of 9" in words(page)
    assert f"data:image/png;base64,{b64encode(PICTURES[0].png).decode()}" in outline(page).links
    assert {file.name: file.read_bytes() for file in (tmp_path / "pictures").iterdir()} == {
        f"{picture.name}.png": picture.png for picture in PICTURES
    }
    assert json.loads((tmp_path / "result.json").read_text())["pictures"][1]["served"] == ["42.50 FUR"]
