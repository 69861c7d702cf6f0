"""The conditions of a session in every state, and their kstatus."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import signals
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.approval import Approval
from partita_api.gpupool import Emulation, LatencyCurve
from partita_api.inferencesession import EngineType, InferenceSession
from partita_api.pod.template import PodTemplate
from partita_operator.ports import Remark, RunPhase
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import ModelsSettings, OperatorSettings
from partita_operator.settings.request_log import RequestLogSettings

DETECTOR = session("traffic").model("detector")
PAIR = session("traffic").chain("detector", "classifier")
MANUAL = DETECTOR.planner(approval=Approval.MANUAL)


def cluster(*sessions: SessionBuilder | InferenceSession, fast: int = 4, slow: int = 4) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(fast).build(), pool("slow").gpus(slow).build())
    made.add(*(s.build() if isinstance(s, SessionBuilder) else s for s in sessions))
    return made


def after(seconds: float, made: SimulatedCluster) -> SimulatedCluster:
    made.run(seconds)
    return made


def before_pools_are_counted() -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("zebra").build(), DETECTOR.build())
    made.look_at_sessions()  # adds the finalizer only
    made.look_at_sessions()
    return made


def with_runs(*phases: RunPhase, seconds: float = 10, pools: tuple[str, ...] = ("fast", "slow")) -> SimulatedCluster:
    made = cluster(DETECTOR)
    made.runner.script = dict.fromkeys(pools, phases)
    return after(seconds, made)


def with_waiting_runs() -> SimulatedCluster:
    made = cluster(DETECTOR)
    made.runner.script = dict.fromkeys(("fast", "slow"), (RunPhase.RUNNING,))
    made.runner.obstacle = "ResourceClaim p-accelerator-x7 is not allocated."
    return after(10, made)


def engine_away(before: float) -> SimulatedCluster:
    made = after(before, cluster(DETECTOR))
    made.engine.away = "The Ray dashboard at http://ray:8265 does not answer."
    return after(10, made)


def few_replicas_up(most: int) -> SimulatedCluster:
    made = cluster(DETECTOR.rate(300))
    made.engine.most_ready = most
    return after(20, made)


def emulated_without_curve() -> SimulatedCluster:
    made = cluster(PAIR)
    curves = Emulation(curves=(LatencyCurve(model="detector", alpha_micros=1, beta_micros=1),))
    made.add(*(pool(name).with_spec(emulation=curves).build() for name in ("fast", "slow")))
    return after(10, made)


def edited(change: Callable[[SessionBuilder], SessionBuilder]) -> SimulatedCluster:
    made = after(20, cluster(DETECTOR))
    made.add(change(DETECTOR).build())
    return after(10, made)


def deleted_pool_named() -> SimulatedCluster:
    made = after(20, cluster(DETECTOR.with_spec(pools=("fast",))))
    made.delete("fast")
    return after(10, made)


def unreadable() -> SimulatedCluster:
    made = after(20, cluster(DETECTOR))
    made.unreadable["default/traffic"] = "The spec is wrong: rate: Field required"
    return after(10, made)


def with_policy(models: ModelsSettings) -> SimulatedCluster:
    made = cluster(DETECTOR)
    made.settings = made.settings.model_copy(update={"models": models})
    made.run(20)
    assert made.runner.started == [], "nothing runs for a forbidden model"
    return made


def with_log_secret(name: str) -> SimulatedCluster:
    sink = "http://sink.logs.svc/"
    made = cluster(DETECTOR.with_spec(frontend={"requestLog": {"sink": sink, "authorization": {"secretName": name}}}))
    allowed = RequestLogSettings(allowed_sinks=(sink,), allowed_secrets=("team-*",))
    made.settings = made.settings.model_copy(update={"request_log": allowed})
    made.run(5)
    return made


def with_image(image: str, engine: EngineType = EngineType.KUBERAY) -> SimulatedCluster:
    """A session with a function of an image of its own."""
    with_crop = DETECTOR.function("crop").edge("detector", "crop")
    detector, crop = with_crop.build().spec.modules
    assert crop.function is not None
    crop = crop.model_copy(update={"function": crop.function.model_copy(update={"image": image})})
    return served_by(engine, with_crop.with_spec(modules=(detector, crop)))


def with_template(template: PodTemplate, engine: EngineType = EngineType.KUBERAY) -> SimulatedCluster:
    return served_by(engine, DETECTOR.with_spec(pod_template=template))


def served_by(engine: EngineType, session: SessionBuilder) -> SimulatedCluster:
    made = cluster(session)
    kuberay = KubeRaySettings(image="registry/serving:1")
    made.settings = made.settings.model_copy(update={"default_engine": engine, "kuberay": kuberay})
    made.run(20)
    return made


def deletion_waits() -> SimulatedCluster:
    made = after(20, cluster(DETECTOR))
    made.engine.removals_needed = 1000
    made.delete("default/traffic")
    return after(5, made)


def cyclic(builder: SessionBuilder) -> SessionBuilder:
    return builder.model("classifier").edge("detector", "classifier").edge("classifier", "detector")


READY = ("True", "Serving")


@pytest.mark.parametrize(
    ("state", "want_ready", "want_progress", "want_words"),
    [
        pytest.param(before_pools_are_counted, ("False", "WaitingForPools"), "Reconciling", "zebra", id="new pool"),
        pytest.param(
            lambda: after(5, cluster(cyclic(DETECTOR))), ("False", "InvalidSpec"), "Stalled", "cycle", id="cycle"
        ),
        pytest.param(
            lambda: after(5, cluster(session("x" * 55).model("detector"))),
            ("False", "InvalidSpec"),
            "Stalled",
            "54 characters",
            id="name too long",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR.with_spec(pools=("fast", "h100")))),
            ("False", "PoolNotFound"),
            "Stalled",
            "h100, but the cluster has no GPUPool of this name",
            id="unknown pool",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR.with_spec(pool_selector={"match_labels": {"tier": "gold"}}))),
            ("False", "NoPoolSelected"),
            "Stalled",
            "tier=gold",
            id="no pool has the labels",
        ),
        pytest.param(
            lambda: with_policy(ModelsSettings(allowed_modules=("allowed",))),
            ("False", "ForbiddenModel"),
            "Stalled",
            "module detector: entrypoint tests.models:detector is not in a module that the platform allows",
            id="forbidden entrypoint",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR.endpoint("plates", 10))),
            ("False", "ForbiddenModel"),
            "Stalled",
            "add http://plates.models.svc/ to models.allowedEndpoints of the chart",
            id="forbidden endpoint",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR.with_spec(frontend={"requestLog": {"sink": "http://sink.logs.svc/a"}}))),
            ("False", "ForbiddenRequestLog"),
            "Stalled",
            "add http://sink.logs.svc/ to requestLog.allowedSinks of the chart",
            id="forbidden sink",
        ),
        pytest.param(
            lambda: with_log_secret("vault"),
            ("False", "ForbiddenRequestLog"),
            "Stalled",
            "add vault to requestLog.allowedSecrets of the chart",
            id="forbidden Secret of a sink",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR, fast=0, slow=0)),
            ("False", "NoCapacity"),
            "Stalled",
            "kubectl describe gpool fast",
            id="pools without accelerators",
        ),
        pytest.param(
            lambda: after(5, cluster(DETECTOR.with_spec(objective={"type": "Power"}))),
            ("False", "PowerUnknown"),
            "Stalled",
            "GPUPool fast, slow does not set it. Set it there",
            id="least power from pools without a power value",
        ),
        pytest.param(
            deleted_pool_named, ("False", "PoolTerminating"), "Stalled", "Select others", id="pool being deleted"
        ),
        pytest.param(unreadable, ("False", "InvalidSpec"), "Stalled", "rate: Field required", id="unreadable spec"),
        pytest.param(
            lambda: with_runs(RunPhase.RUNNING), ("False", "Profiling"), "Reconciling", "0 of 2", id="profiling"
        ),
        pytest.param(
            with_waiting_runs,
            ("False", "Profiling"),
            "Reconciling",
            "Not started: detector on fast: ResourceClaim p-accelerator-x7 is not allocated.; detector on slow: ",
            id="profiling runs whose pods do not start",
        ),
        pytest.param(
            lambda: with_runs(RunPhase.FAILED),
            ("False", "ProfilingFailed"),
            "Reconciling",
            "attempt 1 of 3: RuntimeError: the model wants 4 channels",
            id="first attempts failed",
        ),
        pytest.param(
            lambda: with_runs(RunPhase.FAILED, seconds=100),
            ("False", "ProfilingFailed"),
            "Stalled",
            "partita.dev/retry",
            id="all attempts failed",
        ),
        pytest.param(
            lambda: with_runs(RunPhase.FAILED, seconds=100, pools=("slow",)),
            READY,
            None,
            "1 of 1",
            id="one pool's profile failed",
        ),
        pytest.param(
            emulated_without_curve, ("False", "ProfilingFailed"), "Stalled", "emulation.curves", id="no latency curve"
        ),
        pytest.param(
            lambda: after(10, cluster(DETECTOR.slo(5))),
            ("False", "SLOTooTight"),
            "Stalled",
            "raise slo.latencyMs",
            id="SLO too tight",
        ),
        pytest.param(
            lambda: after(10, cluster(DETECTOR.rate(1000))),
            ("False", "InsufficientCapacity"),
            "Stalled",
            "needs 10 GPUs",
            id="not enough GPUs",
        ),
        pytest.param(
            lambda: after(10, cluster(MANUAL)),
            ("False", "AwaitingApproval"),
            "Reconciling",
            "partita.dev/approved-plan=traffic-",
            id="awaiting approval",
        ),
        pytest.param(lambda: after(10, cluster(DETECTOR)), READY, None, "1 of 1 replicas are up", id="ready"),
        pytest.param(
            lambda: few_replicas_up(2),
            READY,
            "Reconciling",
            "2 of 3 replicas are up",
            id="ready, one replica still starting",
        ),
        pytest.param(
            lambda: few_replicas_up(0),
            ("False", "RollingOut"),
            "Reconciling",
            "detector/p0/0 has 0 of 3",
            id="no replica up",
        ),
        pytest.param(
            lambda: engine_away(0),
            ("Unknown", "EngineUnavailable"),
            "Reconciling",
            "http://ray:8265",
            id="engine away from the start",
        ),
        pytest.param(
            lambda: engine_away(20),
            ("Unknown", "EngineUnavailable"),
            "Reconciling",
            "http://ray:8265",
            id="engine away while serving",
        ),
        pytest.param(
            lambda: edited(lambda s: s.slo(5)),
            ("False", "SLOTooTight"),
            "Stalled",
            "keeps serving",
            id="edited, no plan possible",
        ),
        pytest.param(
            lambda: edited(cyclic), ("False", "InvalidSpec"), "Stalled", "keeps serving", id="edited to an invalid spec"
        ),
        pytest.param(
            lambda: edited(lambda s: s.rate(300)), READY, None, "3 of 3 replicas", id="edited to a larger rate"
        ),
        pytest.param(
            lambda: with_template(PodTemplate(image="registry/own:1")),
            ("False", "ForbiddenPodTemplate"),
            "Stalled",
            "spec.podTemplate.image names registry/own:1, and the platform allows none; remove it, or let the platform "
            "add registry/own:1 to podTemplates.allowedImages",
            id="a part of a pod template that the platform does not allow",
        ),
        pytest.param(
            lambda: with_image("registry/own:1"),
            ("False", "ForbiddenPodTemplate"),
            "Stalled",
            "spec.modules[crop].function.image names registry/own:1, and the platform allows none; remove it, or let "
            "the platform add registry/own:1 to podTemplates.allowedImages",
            id="an image of a function that the platform does not allow",
        ),
        pytest.param(
            lambda: with_image("registry/own:1", EngineType.RAY),
            ("False", "ForbiddenPodTemplate"),
            "Stalled",
            "spec.modules[crop].function.image needs engine KubeRay, because Partita does not make the pods of engine "
            "Ray. Remove it, or set engine.type KubeRay",
            id="an image of a function with engine Ray",
        ),
        pytest.param(
            lambda: with_template(PodTemplate(), EngineType.RAY),
            ("False", "ForbiddenPodTemplate"),
            "Stalled",
            "needs engine KubeRay",
            id="a pod template with the default engine Ray",
        ),
        pytest.param(
            lambda: with_template(PodTemplate(node_selector={"disk": "ssd"})),
            READY,
            None,
            "replicas are up",
            id="an allowed pod template",
        ),
        pytest.param(deletion_waits, ("False", "Deleting"), "Reconciling", "Partita removes", id="being deleted"),
    ],
)
def test_ready_gives_the_first_incomplete_step(
    state: Callable[[], SimulatedCluster], want_ready: tuple[str, str], want_progress: str | None, want_words: str
) -> None:
    made = state()
    (found,) = made.sessions.values()
    conditions = {c.type: c for c in found.status.conditions}

    assert (str(conditions["Ready"].status), conditions["Ready"].reason) == want_ready
    assert want_words in conditions["Ready"].message
    under_way = {t for t in ("Stalled", "Reconciling") if conditions[t].status == "True"}
    assert under_way == ({want_progress} if want_progress else set())
    assert all(c.observed_generation == found.metadata.generation for c in conditions.values())
    assert all(c.message for c in conditions.values())


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(
            lambda: after(10, cluster(DETECTOR)),
            {"Profiled": "ProfilesReady", "Planned": "PlanReady", "RolledOut": "RolledOut", "SLOMet": "NoSignals"},
            id="ready",
        ),
        pytest.param(
            lambda: with_runs(RunPhase.FAILED, seconds=100, pools=("slow",)),
            {"Profiled": "SomeProfilesMissing", "Planned": "PlanReady", "RolledOut": "RolledOut"},
            id="one pool's profile failed",
        ),
        pytest.param(
            lambda: with_runs(RunPhase.RUNNING),
            {"Profiled": "Profiling", "Planned": "WaitingForProfiles", "RolledOut": "WaitingForProfiles"},
            id="profiling",
        ),
        pytest.param(
            lambda: edited(lambda s: s.slo(5)),
            {"Profiled": "ProfilesReady", "Planned": "SLOTooTight", "RolledOut": "SLOTooTight"},
            id="edited, no plan possible",
        ),
        pytest.param(
            lambda: few_replicas_up(2),
            {"Planned": "PlanReady", "RolledOut": "Scaling"},
            id="one replica still starting",
        ),
        pytest.param(
            lambda: after(5, cluster(cyclic(DETECTOR))),
            {"Profiled": "InvalidSpec", "Planned": "InvalidSpec", "RolledOut": "InvalidSpec"},
            id="cycle",
        ),
    ],
)
def test_each_step_has_its_condition(state: Callable[[], SimulatedCluster], want: dict[str, str]) -> None:
    made = state()
    found = {c.type: c.reason for c in made.session("traffic").status.conditions}
    assert {type: found[type] for type in want} == want


@pytest.mark.parametrize(
    ("offered", "bad", "want"),
    [
        pytest.param(50, 0.0, ("True", "SLOMet"), id="all in time"),
        pytest.param(50, 0.01, ("True", "SLOMet"), id="just enough in time"),
        pytest.param(50, 0.011, ("False", "SLOMissed"), id="too many late"),
        pytest.param(0, 0.0, ("Unknown", "NoTraffic"), id="no requests"),
    ],
)
def test_attainment_is_compared_with_its_target(offered: float, bad: float, want: tuple[str, str]) -> None:
    made = after(10, cluster(DETECTOR))
    made.engine.reported["default/traffic"] = signals(None, offered, bad)
    made.run(2)
    assert made.condition("traffic", "SLOMet") == want
    assert made.condition("traffic", "Ready") == READY, "Ready does not depend on attainment"


def test_events_report_only_transitions() -> None:
    made = after(60, cluster(DETECTOR))
    told = [event.reason for key, event in made.events if key == "default/traffic"]
    assert told == ["ProfilesReady", "PlanReady", "Serving", "RolledOut"]

    made.add(DETECTOR.slo(5).build())
    made.run(60)
    told = [(event.type, event.reason) for key, event in made.events if key == "default/traffic"][4:]
    assert told == [("Warning", "SLOTooTight")]


def test_the_status_names_the_engine_of_a_session_that_names_none() -> None:
    made = cluster(DETECTOR)
    made.settings = OperatorSettings(default_engine=EngineType.KUBERAY, kuberay=KubeRaySettings(image="serving"))
    made.run(3)
    assert made.session("traffic").status.engine is EngineType.KUBERAY


def test_a_remark_is_in_one_condition_of_the_session_and_of_no_plan() -> None:
    made = cluster(DETECTOR)
    made.engine.remarks = (Remark("there is no CUDA device here", ("detector/p0/0",)),)
    made.run(20)
    plans = (c for plan in made.plans.values() for c in plan.status.conditions)
    said = [c.type for c in (*made.session("traffic").status.conditions, *plans) if "no CUDA device" in c.message]
    assert said == ["RolledOut"]


def test_a_forbidden_model_is_a_warning() -> None:
    made = with_policy(ModelsSettings(allowed_modules=("allowed",)))
    told = [(event.type, event.reason) for key, event in made.events if key == "default/traffic"]
    assert told == [("Warning", "ForbiddenModel")]


def test_a_settled_session_is_not_written_again() -> None:
    made = after(20, cluster(DETECTOR))
    writes, before = made.writes, made.session("traffic")
    made.run(60)
    assert made.writes == writes
    assert made.session("traffic") is before


def test_while_the_engine_stays_away_it_is_called_less_often() -> None:
    made = after(20, cluster(DETECTOR))
    made.engine.away = "gone"
    pauses = []
    for _ in range(5):
        made.look_once()
        pauses.append(made.requeues["default/traffic"])
        made.now += timedelta(seconds=pauses[-1])
    assert pauses == [5, 5, 10, 20, 40]
    made.now += timedelta(seconds=1000)
    made.look_once()
    assert made.requeues["default/traffic"] == 60
