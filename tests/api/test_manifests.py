"""Reading manifests: what is accepted, and what a person is told about the rest."""

import pytest

from partita_api.manifests import ManifestError, parse_manifests

POOL = """
apiVersion: partita.dev/v1alpha1
kind: GPUPool
metadata: {name: fast}
spec: {count: 3, pricePerHour: 0.71}
"""
SESSION = """
apiVersion: partita.dev/v1alpha1
kind: InferenceSession
metadata: {name: traffic}
spec:
  slo: {latencyMs: 200}
  rate: {requestsPerSecond: 10}
  modules:
    - name: detector
      model: {entrypoint: "models:detector"}
      input: {shape: [3, 224, 224]}
"""
MODEL_INPUT = "      input: {shape: [3, 224, 224]}\n"


def test_resources_are_sorted_by_kind_and_foreign_documents_are_named() -> None:
    found = parse_manifests(f"{POOL}---\n{SESSION}---\nkind: Namespace\napiVersion: v1\n---\n", "all.yaml")

    assert [pool.metadata.name for pool in found.pools] == ["fast"]
    assert [session.metadata.name for session in found.sessions] == ["traffic"]
    assert found.others == ("Namespace",)


def test_numbers_are_kept_as_quantities() -> None:
    (pool,) = parse_manifests(POOL, "pool.yaml").pools

    assert float(pool.spec.price_per_hour) == 0.71


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        pytest.param("a: [", "pool.yaml is not YAML", id="no YAML"),
        pytest.param("a: 1", "has no kind", id="no object"),
        pytest.param(POOL.replace("GPUPool", "GpuPool"), "it has GPUPool, InferenceSession", id="unknown kind"),
        pytest.param(POOL.replace("v1alpha1", "v9"), "write partita.dev/v1alpha1", id="unknown version"),
        pytest.param(POOL.replace("count: 3", "count: -1"), "spec.count", id="negative count"),
        pytest.param(POOL.replace("0.71", "cheap"), "write a number of 0 or more", id="price is no number"),
        pytest.param(POOL.replace("count: 3", "gpus: 3"), "spec.gpus: Extra inputs", id="unknown field"),
        pytest.param(SESSION.replace("latencyMs: 200", "latencyMs: 0"), "spec.slo.latencyMs", id="SLO of 0"),
        pytest.param(SESSION.replace("Second: 10", "Second: -3"), "spec.rate.requestsPerSecond", id="negative rate"),
        pytest.param(
            SESSION.replace("      input: {shape: [3, 224, 224]}\n", ""), "needs input", id="model without input"
        ),
    ],
)
def test_wrong_manifest_is_refused_with_the_field(text: str, want_message: str) -> None:
    with pytest.raises(ManifestError, match=r"^pool\.yaml") as refused:
        parse_manifests(text, "pool.yaml")

    assert want_message in str(refused.value)
