"""A session of one real model on one accelerator, profiled first, and `@serve.batch` with the same executor."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from benchmarks.serving.serving_cases.serve_batch_replica import ServeBatchReplica
from benchmarks.serving.serving_cases.served import monitored, python_path
from numpy.typing import NDArray
from ray import serve

from partita_api.digests import canonical_json
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile, ProfileRequest
from partita_api.session.execution import Backend
from partita_api.session.module import ModelSource, TensorSpec
from partita_profiling.result import REQUEST_VARIABLE, ProfileFailure, parse_result
from partita_runtime.execution.build import warmed
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_application, stage_applications
from partita_runtime.serving.deploy.stage_arguments import stage_build
from partita_runtime.serving.protocol.interface import Interface

POOL = "accelerators"
MODULE = "model"

Array = NDArray[Any]


@dataclass(frozen=True)
class Subject:
    """A model, and where it runs."""

    name: str
    model: ModelSource
    input: TensorSpec
    batch_sizes: tuple[int, ...]
    """Those that are timed; the last is the largest."""
    on_gpu: bool
    backend: Backend

    @property
    def request(self) -> ProfileRequest:
        """What is profiled: the whole model as one block."""
        return ProfileRequest(
            model=self.model,
            input=self.input,
            blocks=1,
            batch_sizes=self.batch_sizes,
            pool=POOL,
            backend=self.backend,
            slowdown=None if self.on_gpu else 1.0,
        )

    def profiled(self) -> Profile:
        """Its profile, measured in a separate process. Ends the program if that fails."""
        run = subprocess.run(
            [sys.executable, "-m", "partita_profiling"],
            env={**os.environ, REQUEST_VARIABLE: canonical_json(self.request), "PYTHONPATH": python_path()},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        found = parse_result(run.stdout)
        if isinstance(found, ProfileFailure):
            raise SystemExit(f"{self.name} cannot be profiled: {found.message}")
        return found


@dataclass(frozen=True)
class ProfiledSession:
    """The subject served by one replica."""

    subject: Subject
    profile: Profile
    slo_ms: int
    window_seconds: float
    """What the frontend's signals are averaged over."""

    @property
    def batch_size(self) -> int:
        """The largest batch."""
        return self.subject.batch_sizes[-1]

    @cached_property
    def session(self) -> InferenceSession:
        """The session as a user would declare it."""
        return InferenceSession.model_validate(
            {
                "metadata": {"name": self.subject.name, "namespace": "default"},
                "spec": {
                    "slo": {"latencyMs": self.slo_ms},
                    "rate": {"requestsPerSecond": 100},
                    "planner": {"blocks": 1},
                    "execution": {"backend": self.subject.backend},
                    "frontend": {"httpPort": 0},
                    "autoscaling": {"windowSeconds": ceil(self.window_seconds)},
                    "modules": [{"name": MODULE, "model": self.subject.model, "input": self.subject.input}],
                },
            }
        )

    @cached_property
    def pool(self) -> GPUPool:
        """One accelerator: a GPU, or the CPU in its place."""
        spec: dict[str, Any] = {} if self.subject.on_gpu else {"emulation": {"slowdown": "1"}}
        return GPUPool.model_validate({"metadata": {"name": POOL}, "spec": spec})

    @cached_property
    def plan(self) -> PipelinePlan:
        """One stage with the whole model, one replica."""
        stage = {"blocks": {"first": 0, "end": 1}, "pool": POOL, "replicas": 1, "latencyMicros": 1}
        pipeline = {"name": "p0", "batchSize": self.batch_size, "throughput": 1, "stages": [stage]}
        module = {"name": MODULE, "rate": 1, "budgetMicros": self.slo_ms * 1000, "pipelines": [pipeline]}
        solution = {"strategy": "by-hand", "objective": "Throughput", "value": 1, "bound": 1, "gap": 0, "seconds": 0}
        return PipelinePlan.model_validate(
            {
                "metadata": {"name": f"{self.subject.name}-plan", "namespace": "default"},
                "spec": {
                    "session": {"name": self.subject.name},
                    "inputsDigest": "benchmark",
                    "solution": solution,
                    "cost": {"allocatedPerHour": 0, "occupancyPerHour": 0},
                    "throughput": 1,
                    "modules": [module],
                },
            }
        )

    @property
    def build(self) -> StageBuild:
        """How a replica builds its executor, Partita's and the plain one."""
        (stage,) = self.plan.spec.modules[0].pipelines[0].stages
        return stage_build(self.session.spec, MODULE, stage, self.batch_size, self.profile, self.pool)

    def partita(self) -> list[dict[str, Any]]:
        """Partita's Serve applications."""
        options = monitored(ServingOptions(stage_cpus=0.1, frontend_cpus=0.1))
        profiles, pools = {(MODULE, POOL): self.profile}, {POOL: self.pool}
        return [
            *stage_applications(self.session, self.plan, profiles, pools, {}, options),
            frontend_application(self.session, self.plan, profiles, pools, options),
        ]

    def plain_serve(self, batch_wait_ms: float) -> list[dict[str, Any]]:
        """The same model behind `@serve.batch`, which waits so long for a batch to fill."""
        arguments = {
            "build": self.build.model_dump_json(by_alias=True),
            "session": self.session.model_dump_json(by_alias=True),
            "outputs": json.dumps([spec.model_dump(mode="json", by_alias=True) for spec in self.profile.outputs]),
            "batch_wait_ms": str(batch_wait_ms),
        }
        return [
            {
                "name": "plain",
                "route_prefix": f"/plain/{self.subject.name}",
                "import_path": "benchmarks.serving.serving_cases.profiled:plain_application",
                "args": arguments,
                "deployments": [
                    {
                        "name": "ProfiledPlainServe",
                        "num_replicas": 1,
                        "max_ongoing_requests": 4 * self.batch_size,
                        "ray_actor_options": {
                            "num_cpus": 0.1,
                            "num_gpus": int(self.subject.on_gpu),
                            "resources": {self.pool.ray_resource: 1},
                        },
                    }
                ],
            }
        ]


class ProfiledPlainServe(ServeBatchReplica):
    """The model with the executor that Partita's stages have."""

    def __init__(self, build: StageBuild, interface: Interface, batch_wait_s: float) -> None:
        super().__init__(warmed(build).executor, interface, MODULE)
        self.set_batches(build.max_batch, batch_wait_s)


def plain_application(args: dict[str, str]) -> serve.Application:
    """Built by Serve from the configuration's `args`."""
    session = InferenceSession.model_validate_json(args["session"])
    outputs = tuple(TensorSpec.model_validate(spec) for spec in json.loads(args["outputs"]))
    deployment = serve.deployment(serve.ingress()(ProfiledPlainServe), name="ProfiledPlainServe")
    return deployment.bind(
        StageBuild.model_validate_json(args["build"]),
        Interface(session.metadata.name, session.spec, {MODULE: outputs}),
        float(args["batch_wait_ms"]) / 1000,
    )
