"""Sessions serve while an earlier version of Partita is replaced by this one, and while the earlier one returns.

The Ray cluster is that of the earlier version from the beginning to the end: Partita upgrades no Ray cluster.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import IMAGE, POOLS, detection, emulated
from tests.e2e.versions import THIS, Ray, Version, earlier_version
from tests.operator.kubectl import Json, Kubectl, eventually, reason
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import Load, steady_load

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import RETRY_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_devtools.control_plane import lifecycle as control_planes
from partita_devtools.control_plane.binaries import Binaries

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.apiserver,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

NAMESPACE = "users"
SETTINGS = {"PARTITA_OPERATOR__RESYNC_SECONDS": "1", "PARTITA_OPERATOR__PROFILING__BACKOFF_SECONDS": "2"}
PLANNER = {"maxBatchSize": 4, "marginPercent": 30, "blocks": 4, "timeLimitSeconds": 200}
DETECTION = detection(slo={"latencyMs": 5000}, autoscaling={"mode": "Disabled"}, planner=PLANNER)
EMULATED = {
    "planner": PLANNER,
    "slo": {"latencyMs": 3000},
    "rate": {"requestsPerSecond": 10},
    "frontend": {"replicas": 2},
    "autoscaling": {"windowSeconds": 3, "coolDownSeconds": 3, "idleFractionThreshold": "100%"},
}
HALF = {"detection": 2.5, "emulated": 5.0}
"""Requests per second, half of what the sessions declare."""
AFTERWARDS = 50
"""Requests to each session after a change."""


@dataclass(frozen=True)
class Phase:
    """What clients saw of a change."""

    what: str
    seconds: float
    loads: dict[str, Load]
    before: frozenset[str]
    after: frozenset[str]
    """The replicas and frontends that ran before and after it."""

    def __str__(self) -> str:
        sent = sum(load.sent for load in self.loads.values())
        failed = sent - sum(load.statuses[200] for load in self.loads.values())
        replicas = f"{len(self.before - self.after)} of {len(self.before)} ended, {len(self.after - self.before)} new"
        return f"| {self.what} | {sent} | {failed} | {replicas} | {self.seconds:.0f} |"

    @property
    def failures(self) -> dict[str, list[str]]:
        """Answers other than 200, by session."""
        return {name: load.errors for name, load in self.loads.items() if load.errors}


@dataclass
class Upgrade:
    """An API server, a Ray cluster of the earlier version, and the operators of both versions."""

    earlier: Version
    kubectl: Kubectl
    ray: Ray
    state_dir: Path
    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def operator(self, version: Version) -> Iterator[None]:
        """An operator of the version, with the others' Lease."""
        state_dir = self.state_dir / f"operator-{len(list(self.state_dir.iterdir()))}"
        with version.operator(state_dir, self.kubectl.kubeconfig, self.ray, SETTINGS):
            yield

    def install_definitions(self, version: Version) -> None:
        """As docs/tasks/upgrade.md says."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(version.definitions))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")

    async def under_load(self, what: str, change: Coroutine[Any, Any, None], **faster: float) -> Phase:
        """Requests to all sessions until the change is complete, and some more."""
        before, began = self.replicas(), time.monotonic()
        task = asyncio.create_task(change)
        loads = await asyncio.gather(*(self._load(name, rate, task) for name, rate in (HALF | faster).items()))
        await task
        seconds = time.monotonic() - began
        phase = Phase(what, seconds, dict(zip(HALF, loads, strict=True)), before, self.replicas())
        self.phases.append(phase)
        print(phase, phase.failures or "")
        return phase

    async def _load(self, session: str, rate: float, change: asyncio.Task[None]) -> Load:
        url = f"http://127.0.0.1:{self.ray.serve_port}/{NAMESPACE}/{session}/v2/models/{session}/infer"
        at_the_end: list[int] = []

        def enough(load: Load) -> bool:
            if change.done():
                at_the_end.append(load.sent)
            return bool(at_the_end) and load.sent >= at_the_end[0] + AFTERWARDS

        return await steady_load(url, IMAGE[None], rate, enough, 4 * PATIENCE_SECONDS)

    def replicas(self) -> frozenset[str]:
        """The replicas and frontends that serve: application, name and process of each."""
        return frozenset(
            f"{name}/{replica['replica_id']}/{replica['pid']}"
            for name, app in self.ray.applications().items()
            for deployment in app["deployments"].values()
            for replica in deployment["replicas"]
            if replica["state"] == "RUNNING"
        )

    def configuration(self) -> dict[str, Json]:
        """The applications as an operator has written them."""
        return {name: app["deployed_app_config"] for name, app in self.ray.applications().items()}

    def session(self, name: str) -> Json:
        """A session as it is stored."""
        found = self.kubectl.get("isess", name)
        assert found is not None
        return found

    def plans(self) -> dict[str, str]:
        """The current plan of each session."""
        return {name: self.session(name)["status"]["currentPlan"]["name"] for name in HALF}

    async def handled(self, token: str) -> None:
        """Until the operator that has the Lease has reconciled all sessions, and they are ready."""
        await self.kubectl.wait("annotate", "isess", "--all", "--overwrite", f"{RETRY_ANNOTATION}={token}")
        for name in HALF:
            await eventually(
                lambda name=name: self.session(name),
                lambda found: found.get("status", {}).get("lastHandledRetry") == token and reason(found)[0] == "True",
            )

    def assert_valid(self) -> None:
        """The stored objects keep the rules of the present definitions, as new objects and in this version's models."""
        for kind, model in (("isess", InferenceSession), ("gpool", GPUPool), ("pplan", PipelinePlan)):
            for found in self.kubectl.list(kind):
                model.model_validate(found)
                kept = {key: found[key] for key in ("apiVersion", "kind", "spec")}
                copy = kept | {"metadata": {"name": f"{found['metadata']['name']}-copy"}}
                self.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(copy))


@pytest.fixture
def upgrade(kubernetes_binaries: Binaries, tmp_path: Path) -> Iterator[Upgrade]:
    """A control plane without definitions, and a Ray cluster of the earlier version."""
    earlier = earlier_version()
    with ExitStack() as running:
        plane = running.enter_context(control_planes.control_plane(tmp_path / "plane", binaries=kubernetes_binaries))
        ray = running.enter_context(earlier.ray(tmp_path / "ray", POOLS))
        kubectl = Kubectl(plane.kubeconfig, NAMESPACE)
        kubectl("create", "namespace", NAMESPACE)
        operators = tmp_path / "operators"
        operators.mkdir()
        yield Upgrade(earlier, kubectl, ray, operators)


async def test_no_request_is_lost_and_no_replica_restarts_while_versions_change(upgrade: Upgrade) -> None:
    upgrade.install_definitions(upgrade.earlier)
    old, new, returned = ExitStack(), ExitStack(), ExitStack()
    with old, new, returned:
        old.enter_context(upgrade.operator(upgrade.earlier))
        upgrade.kubectl.apply(*POOLS, DETECTION, emulated(**EMULATED))
        await upgrade.handled("ready")
        plans, configured = upgrade.plans(), upgrade.configuration()

        async def replace() -> None:
            await asyncio.to_thread(upgrade.install_definitions, THIS)
            await asyncio.to_thread(new.enter_context, upgrade.operator(THIS))
            await asyncio.to_thread(old.close)
            await upgrade.handled("replaced")

        replaced = await upgrade.under_load("the definitions, then the operator are replaced", replace())
        assert not replaced.failures
        assert replaced.after == replaced.before
        assert upgrade.configuration() == configured
        assert upgrade.plans() == plans
        upgrade.assert_valid()

        async def grow() -> None:
            await eventually(upgrade.replicas, lambda now: len(now) > len(replaced.after))

        grown = await upgrade.under_load("more requests: the new operator adds replicas", grow(), emulated=15)
        assert not grown.failures
        assert grown.after > grown.before

        async def plan_again() -> None:
            upgrade.kubectl.apply(emulated(**EMULATED | {"slo": {"latencyMs": 1000}}))
            await eventually(upgrade.plans, lambda now: now["emulated"] != plans["emulated"])
            await eventually(upgrade.configuration, lambda now: not any(plans["emulated"] in name for name in now))
            await upgrade.handled("planned again")

        moved = await upgrade.under_load("the new operator rolls out another plan", plan_again())
        assert not moved.failures
        assert frontends(moved.after) == frontends(moved.before)
        plans, configured = upgrade.plans(), upgrade.configuration()

        async def go_back() -> None:
            await asyncio.to_thread(returned.enter_context, upgrade.operator(upgrade.earlier))
            await asyncio.to_thread(new.close)
            await upgrade.handled("returned")

        back = await upgrade.under_load("the earlier operator returns", go_back())
        assert not back.failures
        assert back.after == back.before
        assert upgrade.configuration() == configured
        assert upgrade.plans() == plans


def frontends(replicas: frozenset[str]) -> set[str]:
    """Those of the replicas that are frontends."""
    return {replica for replica in replicas if ".frontend/" in replica}
