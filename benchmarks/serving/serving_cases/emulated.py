"""A session of one model on emulated GPUs, under a plan written by hand."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from benchmarks.serving.serving_cases.served import monitored

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.execution import BatchingPolicy
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_application, stage_applications

POOL = "gpus"
MODULE = "model"
OUTPUT = TensorSpec(shape=(10,))
"""What the model answers for a sample."""


@dataclass(frozen=True)
class EmulatedSession:
    """The model takes alpha * b + beta microseconds for a batch of b, cut into `stages` even blocks, one a stage."""

    name: str
    gpus: int
    """Replicas of each stage."""
    alpha_micros: int
    beta_micros: int
    slo_ms: int
    batch_size: int
    """The largest batch."""
    input: TensorSpec
    """One sample."""
    policy: BatchingPolicy = BatchingPolicy.DEFERRED
    stages: int = 1
    function: str | None = None
    """Entry point of a function behind the model."""
    http_port: int | None = None
    """Of the frontend itself, 0 for a free one."""
    frontends: int = 1
    cut_elements: int = 1024
    """Numbers that a stage sends to the next one for a sample, of 16 bits each."""
    bandwidth: str | None = None
    """Of each node, in bits per second; None for the default of a pool."""
    gpus_per_node: int = 0
    """0 for all on one node."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"default/{self.name}"

    def latency_micros(self, batch: int) -> int:
        """Of one batch, on all stages together."""
        return self.alpha_micros * batch + self.beta_micros

    @cached_property
    def session(self) -> InferenceSession:
        """The session as a user would declare it."""
        modules: list[dict[str, Any]] = [
            {"name": MODULE, "model": {"entrypoint": "none:none"}, "input": {"shape": self.input.shape}}
        ]
        edges = []
        if self.function is not None:
            modules.append({"name": "function", "function": {"entrypoint": self.function, "maxMillis": 10}})
            edges.append({"from": MODULE, "to": "function"})
        return InferenceSession.model_validate(
            {
                "metadata": {"name": self.name, "namespace": "default"},
                "spec": {
                    "slo": {"latencyMs": self.slo_ms},
                    "rate": {"requestsPerSecond": 100},
                    "batching": {"policy": self.policy},
                    "frontend": {"httpPort": self.http_port, "replicas": self.frontends},
                    "planner": {"blocks": self.stages},
                    "modules": modules,
                    "edges": edges,
                },
            }
        )

    @cached_property
    def pools(self) -> dict[str, GPUPool]:
        """The one pool; its own curve is not used, for the profile has the times."""
        spec: dict[str, Any] = {
            "emulation": {"curves": [{"model": "*", "alphaMicros": 1, "betaMicros": 0}]},
            "gpusPerNode": self.gpus_per_node or self.gpus,
        }
        if self.bandwidth is not None:
            spec["bandwidth"] = self.bandwidth
        return {POOL: GPUPool.model_validate({"metadata": {"name": POOL}, "spec": spec})}

    @cached_property
    def profiles(self) -> dict[tuple[str, str], Profile]:
        """The model's profile on the pool."""
        sizes = tuple(range(1, self.batch_size + 1))
        request = ProfileRequest(
            model=ModelSource(entrypoint="none:none"),
            input=self.input,
            blocks=self.stages,
            batch_sizes=sizes,
            pool=POOL,
        )
        block = tuple(self.latency_micros(batch) / self.stages for batch in sizes)
        profile = Profile(
            key=request.key,
            request=request,
            partition="even",
            batch_sizes=sizes,
            latency=(VgpuLatency(divisor=1, median_micros=(block,) * self.stages),),
            cuts=(Cut(bytes=4 * self.cut_elements, specs=(TensorSpec(shape=(self.cut_elements,)),)),)
            * (self.stages - 1),
            outputs=(OUTPUT,),
        )
        return {(MODULE, POOL): profile}

    @cached_property
    def plan(self) -> PipelinePlan:
        """One pipeline with all replicas."""
        stage_micros = round(self.latency_micros(self.batch_size) / self.stages)
        stages = [
            {
                "blocks": {"first": first, "end": end},
                "pool": POOL,
                "replicas": self.gpus,
                "latencyMicros": stage_micros,
            }
            for first, end in pairwise(range(self.stages + 1))
        ]
        pipeline = {"name": "p0", "batchSize": self.batch_size, "throughput": 1, "stages": stages}
        modules: list[dict[str, Any]] = [
            {"name": MODULE, "rate": 1, "budgetMicros": self.slo_ms * 1000, "pipelines": [pipeline]}
        ]
        if self.function is not None:
            modules.append({"name": "function", "rate": 1, "budgetMicros": 10_000})
        solution = {"strategy": "by-hand", "objective": "Throughput", "value": 1, "bound": 1, "gap": 0, "seconds": 0}
        return PipelinePlan.model_validate(
            {
                "metadata": {"name": f"{self.name}-plan", "namespace": "default"},
                "spec": {
                    "session": {"name": self.name},
                    "inputsDigest": "benchmark",
                    "solution": solution,
                    "cost": {"allocatedPerHour": 0, "occupancyPerHour": 0},
                    "throughput": 1,
                    "modules": modules,
                },
            }
        )

    def applications(self, options: ServingOptions) -> list[dict[str, Any]]:
        """Its Serve applications."""
        return [
            *stage_applications(self.session, self.plan, self.profiles, self.pools, {}, options),
            frontend_application(self.session, self.plan, self.profiles, self.pools, monitored(options)),
        ]
