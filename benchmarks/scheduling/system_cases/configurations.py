"""PPipe's clusters and models: 100 GPUs with groups of three models, and 16 GPUs with one model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACE = "maf19"
"""PPipe's 12 configurations of 100 GPUs with the weights of this trace: three groups of models on HC1 to HC4."""
SMALL = (4, 12)
"""GPUs of the high and of the low class in PPipe's testbed."""
USUAL_SCALE = 5
"""PPipe's SLO is this many times the latency of one sample on the fastest GPU."""


@dataclass(frozen=True)
class Configuration:
    """Models with their SLOs and weights, on GPUs of a high and of a low class."""

    cluster: str
    """PPipe's name of the two classes and their network: HC1 to HC4."""
    reference: Mapping[str, Any]
    """As in `reference_plans.json`."""
    profiles: Path

    @property
    def name(self) -> str:
        """Cluster and models."""
        return f"{self.cluster} {'+'.join(model.split('_')[0] for model in self.reference['models'])}"

    @property
    def slos(self) -> Mapping[str, float]:
        """Microseconds, by model."""
        return dict(zip(self.reference["models"], self.reference["slo_us"], strict=True))

    @property
    def weights(self) -> Mapping[str, float]:
        """The share of the requests that are for each model."""
        return dict(zip(self.reference["models"], self.reference["weights"], strict=True))

    @property
    def gpus(self) -> Mapping[str, int]:
        """By class, the high one first."""
        return {pool["gpu"]: pool["count"] for pool in self.reference["pools"]}

    def changed(self, **fields: Any) -> "Configuration":
        """With other fields of the reference."""
        return Configuration(self.cluster, {**self.reference, **fields}, self.profiles)

    def with_slo_scale(self, scale: float) -> "Configuration":
        """With SLOs of another multiple of the latency on the fastest GPU."""
        return self.changed(slo_us=[slo * scale / USUAL_SCALE for slo in self.reference["slo_us"]])

    def with_gpus(self, counts: Sequence[int]) -> "Configuration":
        """With other numbers of GPUs. Batches are collected from an expected rate in proportion to all GPUs."""
        pools = [{**pool, "count": n} for pool, n in zip(self.reference["pools"], counts, strict=True)]
        fewer = sum(counts) / sum(self.gpus.values())
        rates = [rate * fewer for rate in self.reference["estimated_throughput"]]
        return self.changed(pools=pools, estimated_throughput=rates)

    def single_models(self) -> Sequence["Configuration"]:
        """Each model alone on all of the GPUs."""
        count = len(self.reference["models"])
        listed = ("models", "weights", "slo_us", "estimated_throughput")
        alone = [self.changed(**{name: [self.reference[name][i]] for name in listed}) for i in range(count)]
        return [
            each.changed(weights=[1.0], estimated_throughput=[each.reference["estimated_throughput"][0] * count])
            for each in alone
        ]


def large(data: Path) -> Sequence[Configuration]:
    """The configurations of 100 GPUs, the clusters of one group of models after another."""
    references = json.loads((data / "reference_plans.json").read_text())
    chosen = [reference for reference in references if reference["trace"] == TRACE]
    return [Configuration(f"HC{n % 4 + 1}", reference, data / "profiles") for n, reference in enumerate(chosen)]


def small(data: Path) -> Sequence[Configuration]:
    """The configurations of 16 GPUs: each model on each cluster."""
    return [alone.with_gpus(SMALL) for configuration in large(data) for alone in configuration.single_models()]
