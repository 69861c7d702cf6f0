"""The page on annotations and labels has every name with Partita's prefix, and no other."""

import re

from tests.architecture.sources import ROOT, source_files

from partita_api.meta import GROUP

PAGE = ROOT / "docs/reference/annotations.md"
NAME = re.compile(r"\{GROUP\}/([a-z][a-z-]*)")


def test_every_name_is_on_the_page() -> None:
    used = {name for file in source_files() for name in NAME.findall(file.read_text())}
    described = set(re.findall(rf"`{re.escape(GROUP)}/([a-z-]+)", PAGE.read_text()))

    assert used == described
