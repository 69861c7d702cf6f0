"""The page on local mode, as a reader pastes it: its files, then its commands, with the processes that they start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import pasted, write_files
from tests.docs.shell import Shell
from tests.fixtures import RayClusters

PAGE = "docs/get-started/local.md"

pytestmark = [pytest.mark.ray, pytest.mark.e2e]


@pytest.fixture
def reader(tmp_path: Path, started_clusters: RayClusters) -> Iterator[Shell]:
    started_clusters.stop()
    reader = Shell(tmp_path)
    yield reader
    reader.paste("partita local down --delete-data")


@pytest.mark.timeout(1500)
def test_the_page_works_as_pasted(reader: Shell) -> None:
    write_files(PAGE, reader.folder)
    start, look, other, change, stop = pasted(PAGE)

    assert "isess/shop serves at http://127.0.0.1:" in reader.paste(start)
    looked = reader.paste(look)
    assert "Ready" in looked
    assert "operator: " in looked
    assert "shop" in reader.paste(other)
    stored = yaml.safe_load((reader.folder / ".partita/local/objects/inferencesessions/default/shop.yaml").read_text())
    assert stored["status"]["url"].endswith("/default/shop")

    again = reader.paste("partita local up -f manifests/")
    assert "isess/shop serves at" in again
    assert "starting Ray node" not in again

    assert "isess/shop deleted" in reader.paste(change)
    reader.paste(stop)
    assert "not running" in reader.run("partita local status").stdout
