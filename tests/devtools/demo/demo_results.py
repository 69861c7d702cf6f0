"""A demonstration's result as it might be, made up but consistent: for the report's tests."""

from functools import cache

import numpy as np

from partita_api.conditions import Condition, ConditionStatus
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_devtools.demo.result import DemoResult, PhaseResult, SignalSample, Verification
from partita_devtools.demo.simulation import SimulatedPlan
from partita_devtools.sessions.snapshot import ConditionChange
from partita_runtime.load.report import RequestRecord, summarize
from partita_runtime.serving.telemetry.signals import SessionSignals
from partita_runtime.simulation.report import BatchExecution, LoadPoint

SESSION = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "InferenceSession",
    "metadata": {"name": "traffic", "namespace": "default", "generation": 1},
    "spec": {
        "slo": {"latencyMs": 400, "attainment": "99%"},
        "rate": {"requestsPerSecond": 250},
        "modules": [
            {"name": "detector", "model": {"entrypoint": "traffic.models:detector"}, "input": {"shape": [3, 96, 96]}},
            {"name": "crop", "function": {"entrypoint": "traffic.functions:crop", "maxMillis": 15}},
            {"name": "vehicle", "model": {"entrypoint": "m:v"}, "input": {"shape": [3, 64, 64]}},
            {"name": "person", "model": {"entrypoint": "m:p"}, "input": {"shape": [3, 64, 64]}},
        ],
        "edges": [
            {"from": "detector", "to": "crop"},
            {"from": "crop", "to": "vehicle", "fanOut": {"mean": "2", "max": 3}},
            {"from": "crop", "to": "person", "fanOut": {"mean": "1", "max": 3}},
        ],
    },
    "status": {"url": "http://127.0.0.1:8000/default/traffic", "currentPlan": None},
}

PLAN = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "PipelinePlan",
    "metadata": {"name": "traffic-7f3a91c2", "namespace": "default"},
    "spec": {
        "session": {"name": "traffic"},
        "inputsDigest": "7f3a91c2",
        "solution": {
            "strategy": "partita",
            "objective": "Cost",
            "value": "3.31",
            "bound": "3.31",
            "gap": "0",
            "seconds": "1.84",
            "explanation": "The detector binds: its budget of 190 ms leaves room for two stages. "
            "Runner-up: no-partitioning at 4.05 needs one more l4-emulated.",
        },
        "modules": [
            {
                "name": "detector",
                "rate": "250",
                "budgetMicros": 190000,
                "pipelines": [
                    {
                        "name": "p0",
                        "batchSize": 6,
                        "throughput": "210",
                        "stages": [
                            {"blocks": {"first": 0, "end": 6}, "pool": "l4-emulated", "replicas": 2,
                             "latencyMicros": 20820, "transferMicros": 312},
                            {"blocks": {"first": 6, "end": 10}, "pool": "p4-emulated", "replicas": 3,
                             "latencyMicros": 41200},
                        ],
                    },
                    {
                        "name": "p1",
                        "batchSize": 8,
                        "throughput": "80",
                        "stages": [
                            {"blocks": {"first": 0, "end": 10}, "pool": "p4-emulated", "replicas": 2,
                             "latencyMicros": 132000},
                        ],
                    },
                ],
            },
            {"name": "crop", "rate": "250", "budgetMicros": 15000},
            {
                "name": "vehicle",
                "rate": "500",
                "budgetMicros": 60000,
                "pipelines": [
                    {
                        "name": "p0",
                        "batchSize": 12,
                        "throughput": "560",
                        "stages": [
                            {"blocks": {"first": 0, "end": 10}, "pool": "p4-emulated", "replicas": 3,
                             "latencyMicros": 51400},
                        ],
                    }
                ],
            },
            {
                "name": "person",
                "rate": "250",
                "budgetMicros": 58000,
                "pipelines": [
                    {
                        "name": "p0",
                        "batchSize": 10,
                        "throughput": "294",
                        "stages": [
                            {"blocks": {"first": 0, "end": 10}, "pool": "p4-emulated", "replicas": 1,
                             "latencyMicros": 34000},
                        ],
                    }
                ],
            },
        ],
        "cost": {"allocatedPerHour": "3.31", "occupancyPerHour": "2.74"},
        "throughput": "286",
        "alternatives": [
            {"strategy": "no-partitioning", "feasible": True, "value": "4.05", "summary": "detector: 4 x l4-emulated"},
            {"strategy": "nexus", "feasible": False, "summary": "2d of the detector exceeds its budget"},
        ],
    },
}  # fmt: skip

POOLS = (("l4-emulated", "0.71", 6), ("p4-emulated", "0.21", 10))

TIMELINE = (
    (0.4, "GPUPool l4-emulated", "Ready", "True", "Available", "6 accelerators, 6 free."),
    (0.4, "GPUPool p4-emulated", "Ready", "True", "Available", "10 accelerators, 10 free."),
    (0.9, "InferenceSession traffic", "Profiled", "False", "Profiling", "0 of 6 profiles are there."),
    (0.9, "InferenceSession traffic", "Planned", "False", "WaitingForProfiles", "A plan is made once they are there."),
    (0.9, "InferenceSession traffic", "RolledOut", "False", "Planning", "There is no plan to roll out."),
    (0.9, "InferenceSession traffic", "Ready", "False", "Profiling", "0 of 6 profiles are there."),
    (0.9, "InferenceSession traffic", "SLOMet", "Unknown", "NoTraffic", "No request has arrived."),
    (14.1, "InferenceSession traffic", "Profiled", "True", "ProfilesReady", "All 6 profiles are there."),
    (14.1, "InferenceSession traffic", "Planned", "False", "Planning", "A plan is being searched for."),
    (17.0, "InferenceSession traffic", "Planned", "True", "PlanReady", "Plan traffic-7f3a91c2 serves 286 requests/s."),
    (17.5, "InferenceSession traffic", "RolledOut", "False", "RollingOut", "2 of 5 stages are up."),
    (31.0, "InferenceSession traffic", "RolledOut", "True", "RolledOut", "Plan traffic-7f3a91c2: 5 of 5 stages."),
    (31.2, "InferenceSession traffic", "Ready", "True", "Serving", "It serves with traffic-7f3a91c2."),
    (44.0, "InferenceSession traffic", "SLOMet", "True", "SLOMet", "99.8% within 400 ms."),
    (98.0, "InferenceSession traffic", "SLOMet", "False", "SLOMissed", "93.1% within 400 ms; the SLO is 99%."),
    (121.0, "InferenceSession traffic", "SLOMet", "True", "SLOMet", "99.7% within 400 ms."),
)


@cache
def demo_result(*, emulated: bool = True, verification: Verification | None = None) -> DemoResult:
    """A minute at the planned rate, half a minute at twice that, half a minute back."""
    phases, samples = _measured()
    return DemoResult(
        started_at="2025-05-11T09:30:00+00:00",
        machine="Linux x86_64, 2 CPU cores",
        example="examples/traffic-emulated",
        emulated=emulated,
        session=InferenceSession.model_validate(SESSION),
        plan=PipelinePlan.model_validate(PLAN),
        pools=tuple(_pool(*pool) for pool in POOLS),
        first_answer_after_s=58.4,
        ready_after_s=31.2,
        load_after_s=34.0,
        timeline=tuple(ConditionChange(*change) for change in TIMELINE),
        phases=phases,
        samples=samples,
        verification=verification,
        simulated=_simulated(),
    )


def _simulated() -> SimulatedPlan:
    """Goodput that stays at its peak, and two replicas of each stage that work in turn."""
    loads = tuple(LoadPoint(rate, min(rate, 390.0)) for rate in (62.5, 125.0, 250.0, 375.0, 500.0, 750.0))
    stages = [
        (module["name"], pipeline["name"], number, stage, pipeline["batchSize"])
        for module in PLAN["spec"]["modules"]  # type: ignore[index]
        for pipeline in module.get("pipelines", [])
        for number, stage in enumerate(pipeline["stages"])
    ]
    executions = [
        BatchExecution(
            f"{module}/{pipeline}/{number}/{batch % 2}", module, pipeline, number, batch, size,
            start := 20_000 * batch + 25_000 * number, start + stage["latencyMicros"],
        )
        for module, pipeline, number, stage, size in stages
        for batch in range(24)
    ]  # fmt: skip
    return SimulatedPlan(loads, tuple(executions))


@cache
def _measured() -> tuple[tuple[PhaseResult, ...], tuple[SignalSample, ...]]:
    generator = np.random.default_rng(5)
    phases = []
    start = 1.0
    for name, rate, seconds, bad in (
        ("planned load", 250.0, 60.0, 0.002),
        ("double load", 500.0, 30.0, 0.21),
        ("planned load again", 250.0, 30.0, 0.004),
    ):
        phases.append(_phase(generator, name, start, rate, seconds, bad))
        start += seconds + 0.3
    return tuple(phases), tuple(_sample(generator, float(at)) for at in range(1, 122))


def agreement(*differences: str) -> Verification:
    """A comparison of four requests' answers."""
    return Verification(requests=4, values=84, largest_error=0.0043, tolerance=0.02, differences=differences)


def _phase(
    generator: np.random.Generator, name: str, start: float, rate: float, seconds: float, bad: float
) -> PhaseResult:
    due = np.sort(generator.uniform(0, seconds, int(rate * seconds)))
    latencies = generator.gamma(9, 0.014 * (1.35 if bad > 0.1 else 1), len(due)) + 0.06
    dropped = generator.random(len(due)) < bad
    records = [
        RequestRecord(at, at, at + (0.02 if drop else latency), "503" if drop else "200")
        for at, latency, drop in zip(due.tolist(), latencies.tolist(), dropped.tolist(), strict=True)
    ]
    return PhaseResult(name, start, rate, summarize(records, slo_s=0.4, duration_s=seconds), busy=0.5)


def _pool(name: str, price: str, count: int) -> GPUPool:
    return GPUPool.model_validate(
        {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": name},
            "spec": {
                "count": count,
                "pricePerHour": price,
                "emulation": {"curves": [{"model": "*", "alphaMicros": 1000, "betaMicros": 5000}]},
            },
            "status": {"nodes": 1, "capacity": count},
        }
    )


def _sample(generator: np.random.Generator, at: float) -> SignalSample:
    surge = 61.3 <= at - 3 <= 91.3
    grown = 68 <= at <= 100
    stages = [
        _stage(generator, row["name"], pipeline["name"], number, stage, surge, grown)
        for row in PLAN["spec"]["modules"]  # type: ignore[index]
        for pipeline in row.get("pipelines", [])
        for number, stage in enumerate(pipeline["stages"])
    ]
    busy = sum((1 - s["idleFraction"]) * s["ready"] for s in stages) / sum(s["ready"] for s in stages)
    signals = SessionSignals.model_validate(
        {
            "session": "default/traffic",
            "windowSeconds": min(10.0, at),
            "plan": "traffic-7f3a91c2",
            "nextPlan": None,
            "message": "",
            "offeredRate": 500 if surge else 250,
            "goodput": 390 if surge else 249,
            "badRate": 0.21 if surge else 0.002,
            "idleFraction": 1 - busy,
            "p50Ms": 241.0,
            "p99Ms": 371.0,
            "batchSizes": {1: 14, 2: 31, 4: 120, 6: 340, 8: 160, 10: 210, 12: 390},
            "outcomes": {"in_time": 2490},
            "stages": stages,
        }
    )
    desired = {f"{s['module']}/{s['pipeline']}/{s['stage']}": s["ready"] for s in stages}
    recommended = "bad rate 21.0% at 500 requests/s: add 1 replica to detector/p0" if surge else ""
    return SignalSample(at, signals, desired, recommended)


def _stage(
    generator: np.random.Generator, module: str, pipeline: str, number: int, stage: dict, surge: bool, grown: bool
) -> dict:
    idle = float(np.clip(generator.normal(0.06 if surge else 0.24, 0.03), 0, 1))
    return {
        "module": module,
        "pipeline": pipeline,
        "stage": number,
        "pool": stage["pool"],
        "planned": stage["replicas"],
        "ready": stage["replicas"] + (1 if grown and module == "detector" and pipeline == "p0" else 0),
        "idleFraction": idle,
        "badRate": 0.0,
        "predictedMicros": stage["latencyMicros"],
        "actualMicros": stage["latencyMicros"] * float(generator.normal(1.02, 0.01)),
    }


def condition(type: str, status: str, reason: str = "Because", message: str = "So it is.") -> Condition:
    """A condition for observations."""
    return Condition(
        type=type,
        status=ConditionStatus(status),
        reason=reason,
        message=message,
        observed_generation=1,
        last_transition_time="2025-05-11T09:30:00Z",
    )
