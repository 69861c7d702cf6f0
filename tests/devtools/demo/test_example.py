"""Examples: what they need to have, and what is sent to them."""

from pathlib import Path

import numpy as np
import pytest

from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import read_example, samples

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

POOL = """
apiVersion: partita.dev/v1alpha1
kind: GPUPool
metadata: {name: fast}
spec: {count: 3}
"""
SESSION = """
apiVersion: partita.dev/v1alpha1
kind: InferenceSession
metadata: {name: mine}
spec:
  slo: {latencyMs: 200}
  rate: {requestsPerSecond: 10}
  modules:
    - name: first
      model: {entrypoint: "nowhere.models:first"}
      input: {shape: [4], dtype: INT32}
"""


def write(directory: Path, *documents: str) -> Path:
    manifests = directory / "manifests"
    manifests.mkdir(parents=True)
    for number, document in enumerate(documents):
        (manifests / f"{number}.yaml").write_text(document)
    return directory


def test_example_says_what_runs_it() -> None:
    example = read_example(EXAMPLES / "traffic", namespace="shop")

    assert example.session.key == "shop/traffic"
    assert {node.name: node.slots for node in example.ray_nodes} == {"cpu-fast": 8, "cpu-slow": 12}
    assert all("transformers:YolosForObjectDetection" in node.imported_packages for node in example.ray_nodes)
    assert example.python_path == EXAMPLES
    assert not example.is_emulated
    assert read_example(EXAMPLES / "traffic-emulated").is_emulated


@pytest.mark.parametrize(
    ("documents", "want_message"),
    [
        pytest.param((), "there are no manifests", id="nothing"),
        pytest.param((POOL,), "0 sessions and 1 pools", id="no session"),
        pytest.param((SESSION,), "1 sessions and 0 pools", id="no pool"),
        pytest.param((POOL, SESSION, SESSION.replace("mine", "other")), "2 sessions", id="two sessions"),
        pytest.param((POOL, SESSION.replace("latencyMs: 200", "latencyMs: -1")), "spec.slo.latencyMs", id="wrong"),
    ],
)
def test_folder_that_is_no_example_is_refused(documents: tuple[str, ...], want_message: str, tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=want_message):
        read_example(write(tmp_path, *documents))


def test_an_example_with_a_demonstration_makes_its_requests() -> None:
    photographs = samples(read_example(EXAMPLES / "traffic"), 3, seed=1)

    assert photographs["input"].shape == (3, 3, 224, 224)
    neighbours = np.corrcoef(photographs["input"][0, 0, :, :-1].ravel(), photographs["input"][0, 0, :, 1:].ravel())
    assert neighbours[0, 1] > 0.9, "neighbouring pixels of a photograph are alike, those of noise are not"


def test_noise_is_sent_to_emulated_accelerators_and_to_packages_without_a_demonstration(tmp_path: Path) -> None:
    emulated = samples(read_example(EXAMPLES / "traffic-emulated"), 2, seed=1)
    unknown = samples(read_example(write(tmp_path, POOL, SESSION)), 2, seed=1)

    assert emulated["input"].shape == (2, 3, 96, 96)
    assert emulated["input"].dtype == np.float32
    assert unknown["input"].shape == (2, 4)
    assert unknown["input"].dtype == np.int32


def test_there_is_no_noise_of_texts(tmp_path: Path) -> None:
    reader = '- {name: reader, function: {entrypoint: "a:b"}, input: {shape: [1], dtype: BYTES}}'
    example = read_example(write(tmp_path, POOL, SESSION.rstrip() + f"\n    {reader}\n"))
    with pytest.raises(DemoError, match="cannot make BYTES"):
        samples(example, 2, seed=1)


def test_samples_repeat_with_the_seed() -> None:
    example = read_example(EXAMPLES / "traffic-emulated")

    np.testing.assert_array_equal(samples(example, 2, seed=7)["input"], samples(example, 2, seed=7)["input"])
    assert not np.array_equal(samples(example, 2, seed=7)["input"], samples(example, 2, seed=8)["input"])


def test_a_demonstration_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    example = read_example(write(tmp_path / "nowhere", POOL, SESSION))
    (tmp_path / "nowhere" / "demonstration.py").write_text("import package_that_is_missing")

    with pytest.raises(DemoError, match="No module named 'package_that_is_missing'; install what it imports"):
        samples(example, 2, seed=1)
