"""A demand for MIG slices, as users write it in YAML: models with load and measurements, or numbers of slices."""

from dataclasses import replace
from math import inf
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from partita_api.fields.quantity import Quantity
from partita_api.manifests import NotYamlError, explain, parse_yaml
from partita_api.meta import NAME_PATTERN, SpecModel
from partita_planner.mig.errors import BadDemandError
from partita_planner.mig.manifests import Fleet
from partita_planner.mig.packing import (
    MAX_GPUS,
    BatchWorkload,
    NoPacking,
    Packing,
    fewest_gpus,
    most_served,
    requested_slices,
)
from partita_planner.mig.paris_algorithm import (
    SliceCurve,
    batch_workloads,
    check_distribution,
    paris,
    placed,
    segment_workloads,
)
from partita_planner.mig.products import ProductTable
from partita_planner.solver.deadline import Deadline

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BatchSize = Annotated[int, Field(ge=1, le=100_000)]


class SliceMeasurement(SpecModel):
    """Measurements of a model on one slice of a profile, by batch size."""

    throughput: dict[BatchSize, Positive] = Field(
        min_length=1, description="Queries per second when every query is a batch of that size."
    )
    utilization: dict[BatchSize, Share] = Field(default={}, description="0 to 1; PARIS needs it.")


class ModelDemand(SpecModel):
    """One model's load."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
    queries_per_second: Positive = Field(default=1.0, description="A query is a batch.")
    batches: dict[BatchSize, Weight] = Field(
        min_length=1, description="How often each batch size occurs, in any one unit."
    )
    slices: dict[str, SliceMeasurement] = Field(min_length=1, description="Measurements by MIG profile.")
    slo_ms: Positive | None = Field(
        default=None,
        description="SLO of a query in milliseconds. Default: every measured slice is allowed.",
    )
    execution_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.75, description="Share of slo_ms that a query may run on its slice; the rest is for waiting."
    )

    @field_validator("batches")
    @classmethod
    def _has_weight(cls, batches: dict[int, float]) -> dict[int, float]:
        check_distribution(batches)
        return batches

    def curves(self) -> tuple[SliceCurve, ...]:
        """The measurements by profile."""
        return tuple(SliceCurve(name, m.utilization, m.throughput) for name, m in self.slices.items())

    def quick_enough(self) -> tuple[SliceCurve, ...]:
        """The measurements of those batch sizes that leave time for waiting; a slice does one query at a time."""
        least = 0.0 if self.slo_ms is None else 1000 / (self.execution_share * self.slo_ms)
        kept = ((c, {b: rate for b, rate in c.throughput.items() if rate >= least}) for c in self.curves())
        return tuple(replace(curve, throughput=throughput) for curve, throughput in kept)


class MigDemand(SpecModel):
    """What to cut GPUs of one product for: either models, or numbers of slices."""

    product: str = Field(description="Such as H100-80GB.")
    fleet: Annotated[str, Field(pattern=NAME_PATTERN, max_length=40)] = Field(
        default="mig", description="Names the pools and node configurations."
    )
    gpus: int | None = Field(
        default=None, ge=1, le=MAX_GPUS, description="GPUs to cut. Default: the fewest that serve the load."
    )
    gpus_per_node: int = Field(default=8, ge=1, le=8)
    price_per_hour: Quantity | None = Field(default=None, description="Price of one whole GPU.")
    bandwidth: Quantity | None = Field(default=None, description="Network bandwidth of one node, such as 100G.")
    models: tuple[ModelDemand, ...] = Field(default=(), max_length=64)
    slices: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        default={}, description="Number of slices by MIG profile, instead of models."
    )

    @model_validator(mode="after")
    def _either_models_or_slices(self) -> Self:
        if bool(self.models) == bool(self.slices):
            raise ValueError("give exactly one of models and slices")
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"each model may be given once; these are {', '.join(names)}")
        return self

    @property
    def nodes(self) -> Fleet:
        """The nodes that are cut."""
        return Fleet(self.fleet, self.gpus_per_node, self.price_per_hour, self.bandwidth)

    def workloads(self) -> tuple[BatchWorkload, ...]:
        """The load, for the exact packing."""
        if self.slices:
            return requested_slices(self.slices)
        return tuple(
            workload
            for model in self.models
            for workload in batch_workloads(model.name, model.quick_enough(), model.batches, model.queries_per_second)
        )


def parse_demand(text: str, source: str) -> MigDemand:
    """A demand in YAML; `source` names it in errors. Raises BadDemandError."""
    try:
        return MigDemand.model_validate(parse_yaml(text))
    except NotYamlError as error:
        raise BadDemandError(f"{source} is not YAML: {error}") from error
    except ValidationError as error:
        raise BadDemandError(f"{source} is not a valid demand for MIG slices:\n{explain(error)}") from error


def pack(demand: MigDemand, products: ProductTable, deadline: Deadline) -> Packing | NoPacking:
    """The exact packing: for models on given GPUs the most throughput, else the fewest GPUs. Raises MigError."""
    product = products.product(demand.product)
    if demand.models and demand.gpus is not None:
        return most_served(product, demand.workloads(), demand.gpus, deadline)
    return fewest_gpus(product, demand.workloads(), deadline, at_most=demand.gpus)


def pack_by_paris(demand: MigDemand, products: ProductTable, deadline: Deadline) -> Packing | NoPacking:
    """PARIS' instances on the demand's GPUs, and what they serve. It proves no bound, and ignores SLOs.

    Raises MigError, also for a demand without `gpus` or with several models.
    """
    product = products.product(demand.product)
    if len(demand.models) != 1 or demand.gpus is None:
        raise BadDemandError("PARIS divides given GPUs for one model: give gpus, and one entry in models")
    (model,) = demand.models
    answer = paris(product, model.curves(), model.batches, demand.gpus)
    found = placed(product, answer, demand.gpus, deadline)
    if isinstance(found, NoPacking):
        return found
    scale = answer.rate(found.slices) / model.queries_per_second
    load = batch_workloads(model.name, model.curves(), model.batches, model.queries_per_second)
    workloads = segment_workloads(answer, load)
    return replace(
        found,
        instances={(model.name, name): found.slices[name] for name in answer.used},
        time={
            (w.model, w.batch, name): scale * w.rate / rate for w in workloads for name, rate in w.throughput.items()
        },
        scale=scale,
        bound=inf,
    )
