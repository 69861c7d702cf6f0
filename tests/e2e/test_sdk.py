"""The SDK serves and calls sessions: the notebook and the programs of its page, from top to bottom."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.docs.pages import programs
from tests.e2e.conftest import IMAGE, TOLERANCE
from tests.examples.notebooks import Notebook
from tests.operator.kubectl import Kubectl

from partita_runtime.load.reference import WholeModels

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PAGE = "docs/reference/sdk.md"
SERVED_HERE = {
    "shop.models": "tests.e2e.workload",
    "shop.functions": "tests.e2e.functions",
    "slo_ms=200, requests_per_second=50": "slo_ms=1500, requests_per_second=5, "
    'planner={"maxBatchSize": 4, "marginPercent": 30, "blocks": 4, "timeLimitSeconds": 20}',
    "session.apply(cluster)": 'session.configure(pools=["e2e-fast"]).apply(cluster)',
    "timeout=600": "timeout=900",
}
"""What an author replaces by their own models, with the SLO and the pool of this machine."""


@pytest.fixture
def reader(empty_namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """A person whose kubectl is in the test's namespace."""
    kubeconfig = yaml.safe_load(empty_namespace.kubeconfig.read_text())
    for context in kubeconfig["contexts"]:
        context["context"]["namespace"] = empty_namespace.namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    return empty_namespace


async def without_blocking(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


async def test_the_notebook_from_top_to_bottom(reader: Kubectl) -> None:
    notebook = Notebook.read(ROOT / "examples/notebook/session.ipynb")

    shown = await without_blocking(lambda: notebook.run(with_cluster=True, replaced=SERVED_HERE))

    assert set(shown["planned"].gpus) == {"e2e-fast"}
    assert set(shown["infer"]) >= {"classifier"}
    assert reader.get("isess", "shop") is None


@pytest.mark.usefixtures("reader")
async def test_the_programs_of_the_page() -> None:
    """They follow each other, as on the page. The answers are those of the whole models."""
    build, _plan, serve, call = programs(PAGE)
    for old, new in SERVED_HERE.items():
        build, serve = build.replace(old, new), serve.replace(old, new)
    names: dict[str, Any] = {"photos": IMAGE[None]}

    def run() -> None:
        for program in (build, serve, call):
            exec(program, names)

    await without_blocking(run)

    want = WholeModels(names["session"].build().spec).answer({"input": IMAGE})["classifier"]
    np.testing.assert_allclose(names["answer"]["classifier"], want, atol=TOLERANCE * np.abs(want).max())
