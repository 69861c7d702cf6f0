"""Objects of a cluster as the operator leaves them: planned by the real planner, with statuses."""

from functools import cache
from typing import Any

from tests.builders import SessionBuilder, linear_profiles, pool, problem, session

from partita_api.conditions import Condition
from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionStatus, PlanSummary, Signals
from partita_api.meta import SESSION_SPEC_ANNOTATION, ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec, PipelinePlanStatus, StageStatus
from partita_operator.kube.resources import document
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_planner.planning import plan
from partita_planner.problem import NoPlan

SINCE = "2026-01-01T00:00:00Z"
POOLS = (pool("fast").gpus(8).price("2.5"), pool("slow").gpus(6).price("0.7"))
TRAFFIC = session("traffic").slo(200).rate(800).model("detector").function("crop", 3).model("vehicle").model("person")
TRAFFIC = TRAFFIC.edge("detector", "crop").edge("crop", "vehicle", "1.5").edge("crop", "person", "0.5")


def condition(type: str, status: str, reason: str, message: str = "", generation: int = 1) -> Condition:
    """A condition of an object."""
    return Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=SINCE,
    )


READY = condition("Ready", "True", "Serving", "800 requests/s for 9.2 an hour")


def planned(builder: SessionBuilder, rate: float) -> PipelinePlanSpec:
    """The planner's plan of the session at this rate."""
    modules = [module.name for module in builder.modules if module.model is not None]
    found = plan(problem(builder, POOLS, linear_profiles(modules, {"fast": 1.0, "slow": 3.0}), rate))
    assert not isinstance(found, NoPlan), found
    return found.plan


def plan_object(builder: SessionBuilder, name: str, rate: float, **status: Any) -> PipelinePlan:
    """A plan of the session with all its replicas."""
    built = builder.build()
    spec = planned(builder, rate)
    stages = tuple(
        StageStatus(
            module=module.name,
            pipeline=pipeline.name,
            stage=position,
            pool=stage.pool,
            desired=stage.replicas,
            ready=stage.replicas,
        )
        for module, pipeline, position, stage in spec.stages()
    )
    return PipelinePlan(
        metadata=ObjectMeta(
            name=name,
            namespace=built.namespace,
            creation_timestamp=SINCE,
            annotations={SESSION_SPEC_ANNOTATION: built.spec.model_dump_json(by_alias=True)},
        ),
        spec=spec,
        status=PipelinePlanStatus(stages=stages, **status),
    )


def with_status(built: InferenceSession, **fields: Any) -> InferenceSession:
    """The session with this status, about its present generation."""
    status = InferenceSessionStatus(observed_generation=built.metadata.generation, **fields)
    return built.model_copy(update={"status": status})


def signals(**fields: str) -> Signals:
    """What the frontends measured."""
    measured = {"offered_rate": "790", "goodput": "787", "bad_rate": "0.004", "idle_fraction": "0.25"}
    return Signals(**{**measured, "p50_ms": "80", "p99_ms": "190.5", **fields})


def served(builder: SessionBuilder, current: PipelinePlan, **fields: Any) -> InferenceSession:
    """The session, served by this plan."""
    summary = PlanSummary(
        name=current.metadata.name,
        cost_per_hour=current.spec.cost.allocated_per_hour,
        throughput=current.spec.throughput,
    )
    given = {"conditions": (READY,), "signals": signals(), **fields}
    return with_status(builder.build(), current_plan=summary, **given)


def pool_object(number: int, **status: Any) -> GPUPool:
    """One of POOLS with a status."""
    built = POOLS[number].build()
    ready = condition("Ready", "True", "Available", "8 accelerators")
    given = {"capacity": POOLS[number].count, "nodes": 2, "conditions": (ready,), **status}
    return built.model_copy(update={"status": GPUPoolStatus(**given)})


def cluster(*objects: GPUPool | InferenceSession | PipelinePlan, unreadable: dict[str, str] | None = None) -> Cluster:
    """A cluster of these objects."""
    return Cluster(
        pools={o.metadata.name: o for o in objects if isinstance(o, GPUPool)},
        sessions={o.key: o for o in objects if isinstance(o, InferenceSession)},
        plans={f"{o.metadata.namespace}/{o.metadata.name}": o for o in objects if isinstance(o, PipelinePlan)},
        unreadable=unreadable or {},
    )


@cache
def typical() -> Cluster:
    """A session with two plans on two pools."""
    first, second = plan_object(TRAFFIC, "traffic-1", 400), plan_object(TRAFFIC, "traffic-2", 800)
    used = second.spec.gpus()
    pools = (
        pool_object(
            number,
            allocated=str(used.get(name, 0)),
            free=str(POOLS[number].count - used.get(name, 0)),
            idle_fraction="0.25",
            sessions=("default/traffic",) if used.get(name) else (),
        )
        for number, name in enumerate(("fast", "slow"))
    )
    return cluster(*pools, served(TRAFFIC, second, history=("traffic-1", "traffic-0")), first, second)


def document_of(built: GPUPool | InferenceSession | PipelinePlan) -> dict[str, Any]:
    """The object as a user or the operator writes it, with its status."""
    made = document(built)
    meta = {name: made["metadata"][name] for name in ("name", "namespace", "annotations") if made["metadata"].get(name)}
    return {**made, "metadata": meta}
