"""What MkDocs calls while it builds the site; `mkdocs.yml` names this file."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from partita_devtools.docs.links import site_markdown
from partita_devtools.docs.pages import copied_pages, generated_pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not have. The table of contents in docs/README.md gets its own page."""
    root = Path(config.config_file_path).parent
    contents = files.get_file_from_path("README.md")
    if contents is not None:
        files.remove(contents)
    for path, text in {**copied_pages(root), **generated_pages(root)}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_event: object) -> str:
    """Make the links of a page lead to pages of the site. The home page is wide: its diagram needs the room."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["toc"]
    return site_markdown(markdown, page.file.src_uri, files.src_uris)
