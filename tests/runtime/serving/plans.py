"""Builders of plans, profiles and pools for sessions under test."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

from tests.builders import pool, profile, session

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import Emulation, GPUPool, LatencyCurve
from partita_api.inferencesession import InferenceSession
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_api.profile import Profile
from partita_api.session.edge import Edge
from partita_api.session.endpoint import EndpointSource
from partita_api.session.execution import Batching, BatchingPolicy
from partita_api.session.module import (
    DType,
    FunctionSource,
    ImageInput,
    Join,
    ModelSource,
    Module,
    NamedInput,
    TensorSpec,
)
from partita_api.session.request_log import RequestLog
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.deploy.epochs import Epoch, epoch
from partita_runtime.serving.deploy.stage_arguments import StageArguments, stage_build
from partita_runtime.serving.deploy.version_routes import VersionRoute

FUNCTIONS = "tests.runtime.serving.session.functions"
BLOCKS = 4
EMULATED, REAL = "emulated", "cpus"
"""The pools of sessions under test."""


@dataclass(frozen=True)
class Model:
    """A model module of a session under test, emulated unless it has a source."""

    name: str
    input: tuple[int, ...] = (2, 2)
    dtype: DType = DType.FP32
    """The element type of `input`."""
    inputs: tuple[NamedInput, ...] | None = None
    """Several inputs instead of one."""
    outputs: tuple[tuple[int, ...], ...] = ((2,),)
    output_names: tuple[str, ...] = ()
    vocabularies: tuple[int, ...] = ()
    alpha_micros: int = 500
    beta_micros: int = 1000
    entrypoint: str | None = None
    """The real model, which then runs on the CPU."""
    file: str | None = None
    """... or the file that it is in."""
    image: ImageInput | None = None
    memory: tuple[int, int] | None = None
    """Bytes of a block's weights, and of its activations for one sample."""
    sizes: tuple[int, ...] = ()
    """Its size classes, if its input varies in the last dimension, or some of its inputs vary. In `outputs`, -k is the
    k-th part of the size."""
    size_step: int | None = None
    padding: str | None = None
    """What samples are filled up with, if not 0."""

    @property
    def served(self) -> "tuple[Model, ...]":
        """What plans have: a model of fixed size for each size class, or the model itself."""
        return tuple(
            replace(
                self,
                name=f"{self.name}-s{size}",
                input=(*self.input[:-1], size),
                inputs=_of_size(self.inputs, size),
                outputs=tuple(tuple(size // -n if n < 0 else n for n in shape) for shape in self.outputs),
                sizes=(),
                size_step=None,
            )
            for size in self.sizes
        ) or (self,)

    @property
    def module(self) -> Module:
        """The module of the session."""
        variable = {"variable_dimension": len(self.input) - 1, "padding": self.padding} if self.sizes else {}
        return Module.model_validate(
            {
                "name": self.name,
                "model": self.source or ModelSource(entrypoint=f"tests.models:{self.name}"),
                "input": None if self.inputs else {"shape": self.input, "dtype": self.dtype, **variable},
                "inputs": self.inputs,
                "image": self.image,
                "sizes": [{"size": size} for size in self.sizes] or None,
                "sizeStep": self.size_step,
            }
        )

    @property
    def pool(self) -> str:
        return EMULATED if self.source is None else REAL

    @property
    def declared(self) -> dict[str, Any]:
        """What it takes, as fields of a module and of a profile's request."""
        return {"input": None if self.inputs else self.spec, "inputs": self.inputs}

    @property
    def spec(self) -> TensorSpec:
        """The one tensor that it takes."""
        return TensorSpec(shape=self.input, dtype=self.dtype)

    @property
    def source(self) -> ModelSource | None:
        if self.entrypoint is None and self.file is None:
            return None
        return ModelSource(entrypoint=self.entrypoint, file=self.file)


@dataclass(frozen=True)
class Application:
    """A session with one plan: by default every model has `stages` stages of one replica each."""

    name: str
    models: tuple[Model, ...]
    functions: tuple[Module, ...] = ()
    """Modules that no pool runs."""
    edges: tuple[Edge, ...] = ()
    slo_ms: int = 10_000
    stages: int = 1
    replicas: int = 1
    batch_size: int = 8
    cut_bytes: int = 256
    """Bytes of a sample between two stages, before they are halved."""
    bandwidth: float = 10e9
    """Declared bandwidth of the pools, in bits per second."""
    plan_name: str = "plan-1"
    policy: BatchingPolicy = BatchingPolicy.EAGER
    """Eager by default: answers do not wait for their deadline, and no stall makes them late."""
    fields: Mapping[str, Any] | None = None
    slices: tuple[int, ...] = (1,)
    """A pipeline for each of them, on vGPUs that are 1/slice of a GPU and take `slice` times as long."""
    subcluster: str | None = None
    """The sub-cluster that holds all models."""
    pool_memory: str | None = None
    """Memory of one accelerator."""
    clients: AllowedClients | None = None
    """The clients whose requests are answered; None for everybody's."""
    versions: tuple[VersionRoute, ...] = ()
    """Other versions of the session."""
    request_log: RequestLog | None = None
    """Where requests are logged; None for nowhere."""
    padded: Mapping[str, str] = field(default_factory=dict)
    """Size classes without replicas, and the classes that they are padded to."""

    def model(self, name: str, **fields: Any) -> Self:
        return replace(self, models=(*self.models, Model(name, **fields)))

    def function(
        self, name: str, function: str, max_millis: int = 50, input: TensorSpec | None = None, **kwargs: Any
    ) -> Self:
        source = FunctionSource(entrypoint=f"{FUNCTIONS}:{function}", kwargs=kwargs, max_millis=max_millis)
        return replace(self, functions=(*self.functions, Module(name=name, function=source, input=input)))

    def endpoint(self, name: str, input: tuple[int, ...] = (2, 2), **fields: Any) -> Self:
        """A module that another server answers, a tensor or a text; `fields` are those of the endpoint."""
        source = EndpointSource.model_validate({"model": name, **fields})
        text = TensorSpec(shape=(1,), dtype=DType.BYTES)
        spec = text if source.protocol.takes_text else TensorSpec(shape=input)
        return replace(self, functions=(*self.functions, Module(name=name, endpoint=source, input=spec)))

    def edge(self, upstream: str, downstream: str, most: int = 1, when: str | None = None, **mapped: str) -> Self:
        """An edge; `mapped` is its map."""
        fan_out = {"mean": "1", "max": most}
        made = Edge.model_validate(
            {"from": upstream, "to": downstream, "fanOut": fan_out, "when": when, "map": mapped or None}
        )
        return replace(self, edges=(*self.edges, made))

    def optional(self, *names: str) -> Self:
        """These modules, which are there already, are optional."""
        made = [module.model_copy(update={"optional": module.name in names}) for module in self.session.spec.modules]
        return self.with_spec(modules=tuple(made))

    def any_of(self, *names: str, join: Join = Join.ANY) -> Self:
        """These modules, which are there already, do not wait for all modules upstream."""
        modules = self.session.spec.modules
        made = [m.model_copy(update={"join": join}) if m.name in names else m for m in modules]
        return self.with_spec(modules=tuple(made))

    def slo(self, millis: int) -> Self:
        return replace(self, slo_ms=millis)

    def deferred(self) -> Self:
        """Use Deferred: batches wait within the deadline until they fill their GPU."""
        return replace(self, policy=BatchingPolicy.DEFERRED)

    def planned(self, name: str, **fields: Any) -> Self:
        """The same session under another plan; `stages`, `replicas` or `batch_size` may differ."""
        return replace(self, plan_name=name, **fields)

    def logging_to(self, sink: str, **fields: Any) -> Self:
        """Requests and answers are sent to this URL."""
        return replace(self, request_log=RequestLog.model_validate({"sink": sink, **fields}))

    def with_spec(self, **fields: Any) -> Self:
        """Other fields of the session's spec."""
        return replace(self, fields={**(self.fields or {}), **fields})

    @property
    def session(self) -> InferenceSession:
        modules = {
            "modules": (*(model.module for model in self.models), *self.functions),
            "edges": self.edges,
            "batching": Batching(policy=self.policy),
        }
        return (
            session(self.name)
            .slo(self.slo_ms)
            .planner(blocks=BLOCKS)
            .with_spec(**{**modules, **(self.fields or {})})
            .build()
        )

    @property
    def served(self) -> tuple[Model, ...]:
        """The models of the plan."""
        return tuple(each for model in self.models for each in model.served)

    @property
    def pools(self) -> dict[str, GPUPool]:
        """A pool of emulated accelerators, and a pool of CPUs for real models."""
        curve = LatencyCurve(model="*", alpha_micros=1000, beta_micros=0)  # replaced by the profiles' times
        emulations = {EMULATED: Emulation(curves=(curve,)), REAL: Emulation.model_validate({"slowdown": "1"})}
        memory = {} if self.pool_memory is None else {"memory": Quantity(self.pool_memory)}
        return {
            name: pool(name).with_spec(emulation=emulation, **memory).build() for name, emulation in emulations.items()
        }

    @property
    def profiles(self) -> dict[tuple[str, str], Profile]:
        return {(model.name, model.pool): _profile(model, self.slices, self.cut_bytes) for model in self.served}

    @property
    def plan(self) -> PipelinePlan:
        return PipelinePlan(
            metadata=ObjectMeta(name=self.plan_name, namespace="default"),
            spec=PipelinePlanSpec.model_validate(
                {
                    "session": {"name": self.name},
                    "inputs_digest": "of-a-test",
                    "solution": {
                        "strategy": "by-hand",
                        "objective": "Cost",
                        "value": "1",
                        "bound": "1",
                        "gap": "0",
                        "seconds": "0",
                    },
                    "modules": [
                        *(self._module_plan(model) for model in self.served),
                        *({"name": f.name, "rate": "10", "budget_micros": 5000} for f in self.functions),
                    ],
                    "cost": {"allocated_per_hour": "1", "occupancy_per_hour": "1"},
                    "throughput": "100",
                }
            ),
        )

    @property
    def epoch(self) -> Epoch:
        bandwidth = dict.fromkeys(self.pools, self.bandwidth)
        return epoch(self.session, self.plan, self.profiles, bandwidth, self.clients, self.versions, self.request_log)

    def stage_arguments(self) -> list[StageArguments]:
        """The arguments of each replica of the plan."""
        return [
            StageArguments(
                session_key=self.session.key,
                plan=self.plan_name,
                module=module.name,
                pipeline=pipeline.name,
                stage=number,
                pool=stage.pool,
                profile="of-a-test",
                build=stage_build(
                    self.session.spec,
                    module.name,
                    stage,
                    pipeline.batch_size,
                    self.profiles[module.name, stage.pool],
                    self.pools[stage.pool],
                ),
                **self._memory(module.name, pipeline.batch_size),
            )
            for module in self.plan.spec.modules
            for pipeline in module.pipelines
            for number, stage in enumerate(pipeline.stages)
            for _ in range(stage.replicas)
        ]

    def _memory(self, name: str, batch_size: int) -> dict[str, int]:
        (memory,) = [model.memory for model in self.served if model.name == name]
        if memory is None:
            return {}
        return {"static_bytes": BLOCKS * memory[0], "dynamic_bytes": batch_size * memory[1]}

    def _module_plan(self, model: Model) -> dict[str, Any]:
        if model.name in self.padded:
            padded = {"budget_micros": 50_000, "padded_to": self.padded[model.name]}
            return {"name": model.name, "rate": "10", **padded}
        cuts = [BLOCKS * k // self.stages for k in range(self.stages + 1)]
        pipelines = []
        for number, divisor in enumerate(self.slices):
            stages = [
                {
                    "blocks": {"first": first, "end": end},
                    "pool": model.pool,
                    "vgpu_divisor": divisor,
                    "replicas": self.replicas,
                    "latency_micros": 1,
                    "subcluster": self.subcluster,
                }
                for first, end in itertools.pairwise(cuts)
            ]
            named = {"name": f"p{number}", "batch_size": self.batch_size, "throughput": "100", "stages": stages}
            pipelines.append(named)
        return {"name": model.name, "rate": "10", "budget_micros": 50_000, "pipelines": pipelines}


def application(name: str) -> Application:
    """A session without modules, under a plan named plan-1."""
    return Application(name, ())


def detector_with_crops(name: str = "traffic") -> Application:
    """detector -> crop -> classifier: the classifier answers once for each crop; there may be no crop."""
    return (
        application(name)
        .model("detector", input=(3, 4), outputs=((2,),))
        .function("crop", "crop")
        .model("classifier", input=(2, 2), outputs=((5,),))
        .edge("detector", "crop")
        .edge("crop", "classifier", most=3)
    )


def _of_size(inputs: Sequence[NamedInput] | None, size: int) -> tuple[NamedInput, ...] | None:
    """The inputs at the size of a class."""
    if inputs is None:
        return None
    shapes = [[size if k == t.variable_dimension else n for k, n in enumerate(t.shape)] for t in inputs]
    return tuple(NamedInput(name=t.name, shape=shape, dtype=t.dtype) for t, shape in zip(inputs, shapes, strict=True))


def stage_refs(app: Application) -> Sequence[StageRef]:
    """All stages of the application's plan."""
    return [
        StageRef(module.name, pipeline.name, number)
        for module in app.plan.spec.modules
        for pipeline in module.pipelines
        for number in range(len(pipeline.stages))
    ]


def _profile(model: Model, slices: Sequence[int], cut_bytes: int) -> Profile:
    built = (
        profile(model.name)
        .on(model.pool)
        .blocks(BLOCKS)
        .linear(model.alpha_micros, model.beta_micros)
        .batches(*range(1, 17))
        .divisors(*slices)
        .cuts(cut_bytes)
    )
    built = (built if model.memory is None else built.memory(*model.memory)).build()
    request = built.request.model_copy(update={**model.declared, "blocks": BLOCKS})
    outputs = tuple(TensorSpec(shape=shape) for shape in model.outputs)
    partition = built.partition if model.source is None else _digest_of_cut(model)
    answer = {"outputs": outputs, "output_names": model.output_names, "vocabularies": model.vocabularies}
    return built.model_copy(update={"request": request, **answer, "partition": partition})


@cache
def _digest_of_cut(model: Model) -> str:
    from partita_runtime.models.partitioned_model import partition_source  # torch only if a model is real

    assert model.source is not None
    return partition_source(model.source, model.inputs or model.spec, BLOCKS).digest
