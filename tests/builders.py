"""Fluent builders: pools, profiles and sessions for tests, each call returning a new builder.

pool("fast").gpus(4).price("0.71").mps(4).build()
profile("detector").on("fast").blocks(10).linear(1053, 5072).build()
session("traffic").slo(200).rate(50).model("detector").function("crop").edge("detector", "crop").build()
problem(session_builder, pool_builders, profile_builders)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any, Self

from partita_api.fields.label_selector import LabelSelector
from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, GPUPoolSpec, Sharing, SharingMode
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.pool.elastic import Elastic
from partita_api.profile import BlockMemory, Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.edge import Edge
from partita_api.session.endpoint import EndpointSource
from partita_api.session.module import FunctionSource, Join, ModelSource, Module, TensorSpec
from partita_planner.problem import PlanningProblem, Pool

INPUT = TensorSpec(shape=(3, 32, 32))


def source(module: str) -> ModelSource:
    """The model source that session() and profile() agree on for a module of this name."""
    return ModelSource(entrypoint=f"tests.models:{module.replace('-', '_')}")


@dataclass(frozen=True)
class PoolBuilder:
    """Builds a GPUPool."""

    name: str
    count: int = 4
    spec: GPUPoolSpec = field(default_factory=GPUPoolSpec)
    declares_count: bool = True

    def gpus(self, count: int) -> Self:
        return replace(self, count=count)

    def counted(self) -> Self:
        """As many accelerators as its nodes have."""
        return replace(self, declares_count=False)

    def price(self, per_hour: str) -> Self:
        return self.with_spec(price_per_hour=Quantity(per_hour))

    def watts(self, watts: int) -> Self:
        return self.with_spec(power_watts=watts)

    def bandwidth(self, bits_per_second: str) -> Self:
        return self.with_spec(bandwidth=Quantity(bits_per_second))

    def memory(self, quantity: str) -> Self:
        return self.with_spec(memory=Quantity(quantity))

    def per_node(self, gpus: int) -> Self:
        return self.with_spec(gpus_per_node=gpus)

    def mps(self, max_divisor: int) -> Self:
        return self.with_spec(sharing=Sharing(mode=SharingMode.MPS, max_divisor=max_divisor))

    def elastic(self, max_count: int, **fields: int) -> Self:
        """Up to so many accelerators, counted from nodes; other fields of spec.elastic by their Python names."""
        return self.with_spec(elastic=Elastic(max_count=max_count, **fields))

    def on_nodes(self, labels: dict[str, str]) -> Self:
        """Of nodes that have these labels."""
        return self.with_spec(node_selector=LabelSelector(match_labels=labels))

    def with_spec(self, **fields: Any) -> Self:
        return replace(self, spec=self.spec.model_copy(update=fields))

    def build(self) -> GPUPool:
        count = self.count if self.declares_count and self.spec.elastic is None else None
        return GPUPool(metadata=ObjectMeta(name=self.name), spec=self.spec.model_copy(update={"count": count}))

    def for_planner(self) -> Pool:
        """The pool as the planner sees it, with all of its GPUs free."""
        built = self.build()
        return Pool(name=self.name, spec=built.spec, gpus=self.count)


@dataclass(frozen=True)
class ProfileBuilder:
    """Builds a Profile; by default with ten blocks of 1 ms for each sample, for batches up to 8."""

    module: str
    pool: str = "fast"
    block_count: int = 10
    alpha: float = 1000.0
    beta: float = 0.0
    sizes: tuple[int, ...] = tuple(range(1, 9))
    vgpu_divisors: tuple[int, ...] = (1,)
    cut_sizes: tuple[int, ...] | int = 0
    block_memory: tuple[int, int] | None = None
    times: Mapping[int, Sequence[Sequence[float]]] | None = None

    def on(self, pool: str) -> Self:
        return replace(self, pool=pool)

    def blocks(self, count: int) -> Self:
        return replace(self, block_count=count)

    def linear(self, alpha_micros: float, beta_micros: float) -> Self:
        """The whole model takes alpha * batch + beta, spread evenly over the blocks."""
        return replace(self, alpha=alpha_micros, beta=beta_micros, times=None)

    def batches(self, *sizes: int) -> Self:
        return replace(self, sizes=sizes)

    def divisors(self, *divisors: int) -> Self:
        """vGPU divisors; 1/v of a GPU takes v times as long unless measured() says otherwise."""
        return replace(self, vgpu_divisors=divisors)

    def cuts(self, *sizes: int) -> Self:
        """Bytes of one sample at each cut; one number alone is meant for all cuts, however many there are."""
        return replace(self, cut_sizes=sizes[0] if len(sizes) == 1 else sizes)

    def memory(self, weights_bytes: int, activation_bytes: int) -> Self:
        """Memory of every block."""
        return replace(self, block_memory=(weights_bytes, activation_bytes))

    def measured(self, times: Mapping[int, Sequence[Sequence[float]]]) -> Self:
        """Microseconds by vGPU divisor as [block][batch size]."""
        blocks = len(next(iter(times.values())))
        return replace(self, times=times, block_count=blocks, vgpu_divisors=tuple(times))

    def build(self) -> Profile:
        request = ProfileRequest(
            model=source(self.module),
            input=INPUT,
            blocks=min(self.block_count, 20),
            batch_sizes=self.sizes,
            divisors=self.vgpu_divisors,
            pool=self.pool,
        )
        cut_sizes = (self.cut_sizes,) * (self.block_count - 1) if isinstance(self.cut_sizes, int) else self.cut_sizes
        return Profile(
            key=request.key,
            request=request,
            partition="even",
            batch_sizes=self.sizes,
            latency=tuple(VgpuLatency(divisor=v, median_micros=self._times(v)) for v in self.vgpu_divisors),
            cuts=tuple(Cut(bytes=size) for size in cut_sizes),
            memory=()
            if self.block_memory is None
            else (BlockMemory(weights_bytes=self.block_memory[0], activation_bytes=self.block_memory[1]),)
            * self.block_count,
        )

    def _times(self, divisor: int) -> tuple[tuple[float, ...], ...]:
        if self.times is not None:
            return tuple(tuple(row) for row in self.times[divisor])
        row = tuple(divisor * (self.alpha * b + self.beta) / self.block_count for b in self.sizes)
        return (row,) * self.block_count


@dataclass(frozen=True)
class SessionBuilder:
    """Builds an InferenceSession; by default with an SLO of 100 ms, 10 requests/s and no margins."""

    name: str
    namespace: str = "default"
    modules: tuple[Module, ...] = ()
    edges: tuple[Edge, ...] = ()
    slo_ms: int = 100
    requests_per_second: int = 10
    planner_settings: dict[str, Any] = field(default_factory=lambda: {"margin_percent": 0, "headroom_percent": 0})
    fields: dict[str, Any] = field(default_factory=dict)

    def slo(self, millis: int) -> Self:
        return replace(self, slo_ms=millis)

    def rate(self, requests_per_second: int) -> Self:
        return replace(self, requests_per_second=requests_per_second)

    def model(self, name: str) -> Self:
        return self._with_module(Module(name=name, model=source(name), input=INPUT))

    def sized(self, name: str, shares: Mapping[int, str | None], padding: str | None = None) -> Self:
        """A model whose input varies in its last dimension: its size classes, with their shares if they have any."""
        shape = (*INPUT.shape[:-1], max(shares))
        given = {"shape": shape, "variable_dimension": len(shape) - 1, "padding": padding}
        sizes = [{"size": size, "share": share} for size, share in shares.items()]
        fields = {"name": name, "model": source(name), "input": given, "sizes": sizes}
        return self._with_module(Module.model_validate(fields))

    def function(self, name: str, max_millis: int = 0) -> Self:
        entrypoint = f"tests.models:{name.replace('-', '_')}"
        return self._with_module(
            Module(name=name, function=FunctionSource(entrypoint=entrypoint, max_millis=max_millis))
        )

    def endpoint(self, name: str, max_millis: int = 1000) -> Self:
        source = EndpointSource(url=f"http://{name}.models.svc", model=name, max_millis=max_millis)
        return self._with_module(Module(name=name, endpoint=source, input=INPUT))

    def optional(self, *names: str) -> Self:
        """These modules, which are there already, are optional."""
        modules = [m.model_copy(update={"optional": m.name in names}) for m in self.build().spec.modules]
        return self.with_spec(modules=tuple(modules))

    def any_of(self, *names: str, join: Join = Join.ANY) -> Self:
        """These modules, which are there already, do not wait for all modules upstream."""
        modules = tuple(m.model_copy(update={"join": join}) if m.name in names else m for m in self.modules)
        return replace(self, modules=modules)

    def edge(
        self,
        upstream: str,
        downstream: str,
        mean: str = "1",
        most: int | None = None,
        when: str | None = None,
        share: str | None = None,
    ) -> Self:
        """An edge that fans out by `mean`, and by at most `most`: 1 unless the mean is above 1, then 64."""
        fan_out = {"mean": mean, "max": most or (64 if float(mean) > 1 else 1)}
        condition = {"when": when, "share": share}
        made = Edge.model_validate({"from": upstream, "to": downstream, "fanOut": fan_out, **condition})
        return replace(self, edges=(*self.edges, made))

    def chain(self, *models: str) -> Self:
        """Models one after the other."""
        chained = self
        for name in models:
            chained = chained.model(name)
        for upstream, downstream in pairwise(models):
            chained = chained.edge(upstream, downstream)
        return chained

    def planner(self, **settings: Any) -> Self:
        """Fields of spec.planner, by their Python names."""
        return replace(self, planner_settings={**self.planner_settings, **settings})

    def with_spec(self, **fields: Any) -> Self:
        """Any other field of the spec, by its Python name."""
        return replace(self, fields={**self.fields, **fields})

    def _with_module(self, module: Module) -> Self:
        return replace(self, modules=(*self.modules, module))

    def build(self) -> InferenceSession:
        spec = InferenceSessionSpec.model_validate(
            {
                "slo": {"latency_ms": self.slo_ms},
                "rate": {"requests_per_second": self.requests_per_second},
                "modules": self.modules,
                "edges": self.edges,
                "planner": self.planner_settings,
                **self.fields,
            }
        )
        return InferenceSession(
            metadata=ObjectMeta(name=self.name, namespace=self.namespace, uid=f"uid-{self.name}", generation=1),
            spec=spec,
        )


def pool(name: str) -> PoolBuilder:
    """A pool of 4 whole GPUs at 1 an hour with 10 Gbit/s."""
    return PoolBuilder(name)


def profile(module: str) -> ProfileBuilder:
    """A profile of the module's model on pool `fast`."""
    return ProfileBuilder(module)


def session(name: str) -> SessionBuilder:
    """A session without modules."""
    return SessionBuilder(name)


def linear_profiles(
    modules: Sequence[str], pools: Mapping[str, float], alpha: float = 1000.0, beta: float = 4000.0
) -> list[ProfileBuilder]:
    """A profile for every module on every pool; `pools` gives each pool's slowness, 1.0 being alpha and beta."""
    return [
        profile(module).on(name).linear(alpha * slowness, beta * slowness)
        for module, (name, slowness) in product(modules, pools.items())
    ]


def problem(
    session: SessionBuilder,
    pools: Sequence[PoolBuilder],
    profiles: Sequence[ProfileBuilder],
    rate: float | None = None,
    current_plan: PipelinePlanSpec | None = None,
) -> PlanningProblem:
    """The planning problem of a session alone on its pools, at its declared rate unless another is given."""
    built = session.build()
    meta = built.metadata
    return PlanningProblem(
        session=SessionRef(name=meta.name, uid=meta.uid, generation=meta.generation),
        spec=built.spec,
        rate=float(built.spec.rate.requests_per_second) if rate is None else rate,
        pools=tuple(p.for_planner() for p in pools),
        profiles={(p.module, p.pool): p.build() for p in profiles},
        current_plan=current_plan,
    )
