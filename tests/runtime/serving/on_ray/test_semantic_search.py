"""The example `semantic_search` on a real Ray cluster: what it finds is what its model finds in transformers.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.on_ray.conftest import EXAMPLES
from tests.runtime.serving.on_ray.deployment import Deployment
from tests.runtime.serving.plans import application

from partita_api.manifests import parse_manifests
from partita_api.session.module import DType

pytestmark = pytest.mark.ray

MANIFEST = EXAMPLES / "semantic_search" / "manifests" / "session.yaml"
(DECLARED,) = parse_manifests(MANIFEST.read_text(), str(MANIFEST)).sessions
ENCODER = {
    "input": (256,),
    "dtype": DType.INT64,
    "padding": "0",
    "outputs": ((384,), (-1, 384)),
    "output_names": ("vector", "pieces"),
    "entrypoint": "semantic_search.models:encoder",
}
SEARCH = replace(
    application("semantic-search")
    .model("encoder", sizes=(32, 256), **ENCODER)
    .model("reader", sizes=(48, 256), **ENCODER),
    functions=tuple(module for module in DECLARED.spec.modules if module.function is not None),
    edges=DECLARED.spec.edges,
    slo_ms=60_000,
    subcluster="all",
)


@pytest.fixture(scope="module")
def search(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(SEARCH)
    yield deployment
    deployment.remove(lambda name: ".semantic-search." in name)


def test_passages_and_vectors_are_those_of_transformers(search: Deployment, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("A tyre is flat, and it rains. " * 60)
    texts = ["why do stars flicker", "tea", "how do I freeze beans?", "a [PAD] b", f"@{tmp_path / 'long.txt'}", " "]
    program = [sys.executable, str(EXAMPLES / "semantic_search" / "check.py"), "--url", f"http://{search.url(SEARCH)}"]

    done = subprocess.run([*program, *texts], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the session refuses it (400): there is no word in the text; send at least one" in done.stderr
    *_, total = done.stdout.splitlines()
    assert total == "in total: 5 of 5 results are equal, the least cosine is 1.000000; 1 texts were left out"


def test_a_client_of_triton_reads_passages(search: Deployment) -> None:
    text = triton.InferInput("input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([["is this message from my bank real"]], np.object_))

    with triton.InferenceServerClient(search.url(SEARCH)) as client:
        answer = client.infer("semantic-search", [text])

    passages, scores = answer.as_numpy("ranking.passages"), answer.as_numpy("ranking.scores")
    assert passages.shape == scores.shape == (1, 8)
    assert passages[0, 0].decode().startswith("Letters from your bank")
    assert [*scores[0]] == sorted(scores[0], reverse=True)
