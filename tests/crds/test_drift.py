"""The CRDs in the repository and in the chart are those that the models give."""

from pathlib import Path

import pytest

from partita_api.crd_schema import KINDS, CustomResource, crd_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["crds", "charts/partita/crds"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_crd_is_as_generated(kind: CustomResource, folder: str) -> None:
    path = ROOT / folder / f"{kind.plural}.yaml"
    assert path.read_text() == crd_yaml(kind), f"run: partita crds --out {folder}"


@pytest.mark.parametrize("folder", ["crds", "charts/partita/crds"])
def test_no_other_crd_is_left_over(folder: str) -> None:
    assert {p.name for p in (ROOT / folder).glob("*.yaml")} == {f"{kind.plural}.yaml" for kind in KINDS}
