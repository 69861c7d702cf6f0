"""Links between pages: the repository's paths become the site's."""

import posixpath
import re
from collections.abc import Callable, Collection
from typing import Final

COPIED: Final = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changelog.md",
    "SECURITY.md": "contribute/security-policy.md",
    "LICENSE": "contribute/license.md",
}
"""Pages of the site that are files outside of docs/ in the repository, or have another path there."""
GENERATED: Final = {
    "crds/gpupools.yaml": "reference/api/gpupool.md",
    "crds/inferencesessions.yaml": "reference/api/inferencesession.md",
    "crds/pipelineplans.yaml": "reference/api/pipelineplan.md",
    "operator/partita_operator/cli/main.py": "reference/command-line.md",
    "charts/partita/values.yaml": "reference/chart-values.md",
}
"""Files of the repository with the page that is generated from them. Links to the file lead to the page."""

_FENCE: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_CODE_OR_LINK: Final = re.compile(
    r"`[^`]*`|(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])+)\]\((?P<target>[^)\s]+)\)"
)
_NESTED_ITEM: Final = re.compile(r"^ {2,3}(?=(?:[-*]|\d+\.) )", re.MULTILINE)


def repository_path(site_path: str) -> str:
    """The file of the repository whose links a page has. A generated page has the links of a page in docs/."""
    sources = {site: source for source, site in COPIED.items()}
    return sources.get(site_path, f"docs/{site_path}")


def site_path(repository_path: str, pages: Collection[str]) -> str | None:
    """The page of the site for a file of the repository. None if the site does not have it."""
    found = {**COPIED, **GENERATED}.get(repository_path, repository_path.removeprefix("docs/"))
    return found if found in pages else None


def site_markdown(markdown: str, page: str, pages: Collection[str]) -> str:
    """A page as MkDocs needs it: links between pages of the site, nested lists indented by four.

    `page` is its path on the site and `pages` are all paths. A link to a file that the site does not have becomes text.
    A dead link to a page or a picture stays, and MkDocs warns of it.
    """
    parts = _FENCE.split(markdown)
    return "".join(part if index % 2 else _prose(part, page, pages) for index, part in enumerate(parts))


def _prose(markdown: str, page: str, pages: Collection[str]) -> str:
    return _CODE_OR_LINK.sub(_relink(page, pages), _NESTED_ITEM.sub("    ", markdown))


def _relink(page: str, pages: Collection[str]) -> Callable[[re.Match[str]], str]:
    source = posixpath.dirname(repository_path(page))

    def relinked(link: re.Match[str]) -> str:
        if link["target"] is None:
            return link.group(0)
        target, hash_mark, heading = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link.group(0)
        path = posixpath.normpath(posixpath.join(source, target))
        found = path.removeprefix("docs/") if link["image"] else site_path(path, pages)
        if found is None:
            return link.group(0) if path.startswith("docs/") and path.endswith(".md") else link["text"]
        near = posixpath.relpath(found, posixpath.dirname(page) or ".")
        return f"{link['image']}[{link['text']}]({near}{hash_mark}{heading})"

    return relinked
