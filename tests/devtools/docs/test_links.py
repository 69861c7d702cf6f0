"""Links of the repository on the site."""

import pytest

from partita_devtools.docs.links import site_markdown

PAGES = {"index.md", "contents.md", "security.md", "concepts/engines.md", "reference/chart-values.md"}


@pytest.mark.parametrize(
    ("page", "markdown", "on_site"),
    [
        pytest.param("index.md", "[a](docs/security.md#rights)", "[a](security.md#rights)", id="from the root"),
        pytest.param("concepts/engines.md", "[a](../security.md)", "[a](../security.md)", id="within docs"),
        pytest.param("concepts/engines.md", "[a](../../README.md)", "[a](../index.md)", id="to the root"),
        pytest.param("index.md", "[all](docs/README.md)", "[all](contents.md)", id="table of contents"),
        pytest.param(
            "concepts/engines.md",
            "[values](../../charts/partita/values.yaml)",
            "[values](../reference/chart-values.md)",
            id="to what a page is generated from",
        ),
        pytest.param("reference/chart-values.md", "[a](../security.md)", "[a](../security.md)", id="generated page"),
        pytest.param("security.md", "see [`examples`](../examples).", "see `examples`.", id="not on the site"),
        pytest.param("security.md", "[a](gone.md)", "[a](gone.md)", id="dead, which MkDocs reports"),
        pytest.param("index.md", "![a](docs/assets/a.svg)", "![a](assets/a.svg)", id="picture"),
        pytest.param("security.md", "[a](#rights)", "[a](#rights)", id="same page"),
        pytest.param("security.md", "[a](https://example.com)", "[a](https://example.com)", id="other host"),
        pytest.param("security.md", "```\n[a](../x.md)\n```", "```\n[a](../x.md)\n```", id="code"),
        pytest.param("security.md", "`[a-z](b)`", "`[a-z](b)`", id="inline code"),
        pytest.param("security.md", "1. a\n   - b\n", "1. a\n    - b\n", id="nested list"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, markdown: str, on_site: str) -> None:
    assert site_markdown(markdown, page, PAGES) == on_site
