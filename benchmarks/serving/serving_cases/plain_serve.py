"""The baseline: emulated GPUs behind Ray Serve's own `@serve.batch`, with defaults and tuned."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.serving.serving_cases.emulated import MODULE, OUTPUT, POOL, EmulatedSession
from benchmarks.serving.serving_cases.serve_batch_replica import BytesReplica, ServeBatchReplica
from ray import serve

from partita_api.session.execution import BatchingPolicy
from partita_api.session.module import TensorSpec
from partita_runtime.execution.emulation import EmulatedExecutor
from partita_runtime.execution.stage_build import EmulatedStage
from partita_runtime.serving.protocol.interface import Interface


@dataclass(frozen=True)
class ServeSetting:
    """The GPUs and the requests, the same for all that are compared."""

    gpus: int
    alpha_micros: int
    beta_micros: int
    slo_ms: int
    allowance_ms: int
    """What Partita leaves of the SLO for the way between the client and its frontend."""
    batch_size: int
    """The largest batch that a GPU takes."""
    payload_bytes: int

    @property
    def input(self) -> TensorSpec:
        """One sample."""
        return TensorSpec(shape=(max(1, self.payload_bytes // 4),))

    @property
    def stage(self) -> EmulatedStage:
        """The model on one GPU."""
        latency = tuple(self.alpha_micros * b + self.beta_micros for b in range(1, self.batch_size + 1))
        return EmulatedStage(latency_micros=latency, inputs=(self.input,), outputs=(OUTPUT,))

    @property
    def interface(self) -> Interface:
        """What all systems take and give."""
        return Interface("bench", self.session(BatchingPolicy.EAGER).session.spec, {MODULE: self.stage.outputs})

    def session(self, policy: BatchingPolicy, frontends: int = 1) -> EmulatedSession:
        """The session of one model, a replica on each GPU."""
        return EmulatedSession(
            name="bench",
            gpus=self.gpus,
            alpha_micros=self.alpha_micros,
            beta_micros=self.beta_micros,
            slo_ms=self.slo_ms - self.allowance_ms,
            batch_size=self.batch_size,
            input=self.input,
            policy=policy,
            http_port=0,
            frontends=frontends,
        )


@dataclass(frozen=True)
class BatchSetting:
    """How `@serve.batch` is set."""

    batch_size: int
    wait_ms: float
    """How long it waits for a batch to fill."""


def plain_serve(setting: ServeSetting, batches: BatchSetting) -> dict[str, Any]:
    """Ray Serve with its defaults, under /plain; other `batches` take effect in place.

    Nothing is set but what `@serve.batch` needs to see whole batches: replicas, and requests in each.
    """
    return _application(setting, batches, "PlainServe", "plain", "application")


def tuned_serve(setting: ServeSetting, batches: BatchSetting) -> dict[str, Any]:
    """Ray Serve with what makes it faster, besides the flags of its environment, under /tuned: no log of each request,
    an ASGI application, and Partita's way to read requests and to write answers.
    """
    application = _application(setting, batches, "TunedServe", "tuned", "tuned_application")
    application["deployments"][0]["logging_config"] = {"enable_access_log": False}
    return application


def _application(
    setting: ServeSetting, batches: BatchSetting, deployment: str, name: str, builder: str
) -> dict[str, Any]:
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": f"benchmarks.serving.serving_cases.plain_serve:{builder}",
        "args": {"setting": json.dumps(asdict(setting))},
        "deployments": [
            {
                "name": deployment,
                "num_replicas": setting.gpus,
                "max_ongoing_requests": 4 * setting.batch_size,
                "user_config": asdict(batches),
                "ray_actor_options": {"num_cpus": 0.1, "resources": {f"partita-pool-{POOL}": 1}},
            }
        ],
    }


def application(args: dict[str, str]) -> serve.Application:
    """Built by Serve from the configuration's `args`."""
    return serve.deployment(PlainServe).bind(ServeSetting(**json.loads(args["setting"])))


def tuned_application(args: dict[str, str]) -> serve.Application:
    """Built by Serve from the configuration's `args`."""
    deployment = serve.deployment(serve.ingress()(TunedServe), name="TunedServe")
    return deployment.bind(ServeSetting(**json.loads(args["setting"])))


class PlainServe(BytesReplica):
    """One emulated GPU."""

    def __init__(self, setting: ServeSetting) -> None:
        super().__init__(EmulatedExecutor(setting.stage))

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Called by Serve."""
        batches = BatchSetting(**user_config)
        self.set_batches(batches.batch_size, batches.wait_ms / 1000)


class TunedServe(ServeBatchReplica):
    """One emulated GPU."""

    def __init__(self, setting: ServeSetting) -> None:
        super().__init__(EmulatedExecutor(setting.stage), setting.interface, MODULE)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Called by Serve."""
        batches = BatchSetting(**user_config)
        self.set_batches(batches.batch_size, batches.wait_ms / 1000)
