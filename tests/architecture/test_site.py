"""The documentation builds as a site: all pages are in the navigation, all links work, and nothing is remote."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT

REMOTE = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//""")
"""Scripts, styles, fonts and images that a browser would load from another host."""
IMPORTED = re.compile(r"""(?:url\(|@import\s+)["']?(?:https?:)?//""")
UNKNOWN = re.compile(
    r"<(?!(?:a|article|button|code|div|em|form|h\d|hr|img|input|label|li|nav|ol|p|path|pre|span|strong|svg|"
    r"table|tbody|td|th|thead|tr|ul)\b)[a-z][^>]*>"
)
"""Elements that pages do not use."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning fails. With `--quiet` MkDocs would count no warnings."""
    pytest.importorskip("mkdocs", reason="MkDocs is missing: uv pip install -c constraints.txt '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARNING" not in result.stdout + result.stderr
    return folder


@pytest.mark.parametrize(
    "page",
    [
        "index.html",
        "contents.html",
        "troubleshooting.html",
        "contribute/contributing.html",
        "reference/api/inferencesession.html",
        "reference/chart-values.html",
        "reference/command-line.html",
        "reference/python/partita_planner.html",
    ],
)
def test_the_site_has_the_page(site: Path, page: str) -> None:
    assert (site / page).is_file()


def test_browsers_load_nothing_from_other_hosts(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if REMOTE.search(page.read_text())]
    styles = [style for style in site.rglob("*.css") if IMPORTED.search(style.read_text())]

    assert pages + styles == []


def test_text_in_angle_brackets_is_shown(site: Path) -> None:
    """`<name>` outside of code becomes an element that no browser knows, and its text is lost."""
    articles = {page.name: page.read_text().partition("<article")[2] for page in site.rglob("*.html")}
    found = {page: UNKNOWN.findall(article.partition("</article>")[0]) for page, article in articles.items()}

    assert {page: elements for page, elements in found.items() if elements} == {}


def test_lists_and_tables_are_not_shown_as_text(site: Path) -> None:
    """Markdown of GitHub that MkDocs reads differently: lists and tables directly below a paragraph."""
    raw = re.compile(r"<p>[^<]*(?:<(?!/p>)[^<]*)*\n(?:[-*] |\d+\. |\|)")

    assert [str(page.relative_to(site)) for page in site.rglob("*.html") if raw.search(page.read_text())] == []
