"""The notebook runs from top to bottom; its last part only where a cluster is, in tests/e2e."""

from pathlib import Path

import pytest
from tests.examples.notebooks import CLUSTER, Notebook

import partita

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_stored_without_results(path: Path) -> None:
    cells = Notebook.read(path).cells

    assert len({cell.id for cell in cells}) == len(cells)
    assert [cell.id for cell in cells if not cell.is_clean] == []


def test_a_session_is_planned_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    shown = Notebook.read(EXAMPLES / "notebook/session.ipynb").run(with_cluster=False)

    printed = capsys.readouterr().out
    assert "metadata.name: 'Shop'" in printed
    assert "spec.slo.latencyMs: " in printed
    assert "<td>detector</td>" in shown["plan"]._repr_html_()
    assert shown["other-slos"][400] <= shown["plan"].cost_per_hour <= shown["other-slos"][50]
    assert "SLO" in shown["other-slos"][20], "why there is no plan"
    written = partita.Session.from_file("shop.yaml")
    assert written.manifest() in printed
    assert [module.name for module in written.build().spec.modules] == ["detector", "crop", "classifier"]


def test_cells_that_need_a_cluster_are_the_last() -> None:
    tagged = [CLUSTER in cell.tags for cell in Notebook.read(EXAMPLES / "notebook/session.ipynb").cells]

    assert any(tagged)
    assert tagged == sorted(tagged)
