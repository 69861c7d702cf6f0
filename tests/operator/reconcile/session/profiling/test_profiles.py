"""Profiles: which ones a session needs, and how missing ones are made."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import PoolBuilder, SessionBuilder, pool, session, source
from tests.operator.doubles import made_profile
from tests.operator.reconcile.simulated import SimulatedCluster, started_runs

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import Emulation, GPUPoolStatus, LatencyCurve, Sharing, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_api.meta import RETRY_ANNOTATION
from partita_api.pod.template import PodTemplate
from partita_api.profile import Profile, ProfiledPod, ProfileRequest
from partita_api.session.module import DType, ModelSource, Module, NamedInput, TensorSpec
from partita_operator.ports import RunPhase
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.session.profiling.profiles import required_profiles
from partita_operator.settings.model import OperatorSettings, ProfilingSettings

DETECTOR = session("traffic").model("detector")
KEY = "default/traffic"


VARIABLES = [
    {"name": "OMP_NUM_THREADS", "value": "4"},
    {"name": "APP_LEVEL", "value": "1"},
    {"name": "TORCHINDUCTOR_CACHE_DIR", "value": "/mnt/cache"},
]


def templated(template: dict[str, object]) -> PoolBuilder:
    return pool("fast").with_spec(pod_template=PodTemplate.model_validate(template))


def cluster(*sessions: SessionBuilder, pools: tuple[str, ...] = ("fast", "slow")) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(*(pool(name).build() for name in pools), *(s.build() for s in sessions))
    return made


def counted(builder: PoolBuilder) -> Cluster:
    built = builder.build()
    return Cluster(pools={builder.name: built.model_copy(update={"status": GPUPoolStatus(capacity=4)})})


@pytest.mark.parametrize(
    ("wanting", "on", "want"),
    [
        pytest.param(DETECTOR.planner(max_batch_size=16), pool("fast"), {"batch_sizes": (1, 2, 4, 8, 16)}, id="16"),
        pytest.param(DETECTOR.planner(max_batch_size=24), pool("fast"), {"batch_sizes": (1, 2, 4, 8, 16)}, id="24"),
        pytest.param(DETECTOR.planner(max_batch_size=1), pool("fast"), {"batch_sizes": (1,)}, id="1"),
        pytest.param(DETECTOR, pool("fast"), {"divisors": (1,), "pool": "fast"}, id="whole"),
        pytest.param(DETECTOR, pool("fast").mps(4), {"divisors": (1, 2, 3, 4)}, id="MPS"),
        pytest.param(DETECTOR.planner(blocks=7), pool("fast"), {"blocks": 7}, id="blocks"),
        pytest.param(DETECTOR, pool("fast"), {"versions": {"torch": "2.13"}, "curve": None}, id="versions"),
        pytest.param(
            DETECTOR,
            pool("fast").with_spec(
                emulation=Emulation(
                    curves=(
                        LatencyCurve(model="*", alpha_micros=1, beta_micros=2),
                        LatencyCurve(model="detector", alpha_micros=3, beta_micros=4),
                    )
                )
            ),
            {"curve": (3, 4), "slowdown": None},
            id="the module's own curve",
        ),
        pytest.param(
            DETECTOR,
            pool("fast").with_spec(emulation=Emulation(slowdown=Quantity("2.5"))),
            {"curve": None, "slowdown": 2.5},
            id="slowdown",
        ),
        pytest.param(
            DETECTOR,
            templated({"image": "registry/rocm:1", "env": VARIABLES, "resources": {"limits": {"cpu": "4"}}}),
            {"pod": ProfiledPod(image="registry/rocm:1", variables={"OMP_NUM_THREADS": "4"})},
            id="a pod template on GPUs",
        ),
        pytest.param(
            DETECTOR,
            templated({"resources": {"limits": {"cpu": "4000m"}}}).with_spec(sharing=Sharing(mode=SharingMode.CPU)),
            {"pod": ProfiledPod(cpus="4")},
            id="CPUs where these compute",
        ),
        pytest.param(
            DETECTOR,
            templated({"volumes": [{"name": "v", "emptyDir": {}}], "env": VARIABLES[1:]}),
            {"pod": None},
            id="a pod template that changes no measurement",
        ),
    ],
)
def test_a_request_contains_everything_that_changes_a_measurement(
    wanting: SessionBuilder, on: PoolBuilder, want: dict[str, object]
) -> None:
    settings = OperatorSettings(profiling=ProfilingSettings(versions={"torch": "2.13"}))
    required = required_profiles(wanting.build(), counted(on), settings)

    request = required.requests["detector", "fast"]
    assert {name: getattr(request, name) for name in want} == want


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param(DETECTOR.slo(50).rate(500), True, id="SLO and rate"),
        pytest.param(session("other").model("detector"), True, id="another session"),
        pytest.param(DETECTOR.planner(max_batch_size=32), False, id="batch sizes"),
        pytest.param(DETECTOR.planner(blocks=5), False, id="blocks"),
    ],
)
def test_equal_requests_share_one_profile(change: SessionBuilder, same: bool) -> None:
    before, after = (
        required_profiles(s.build(), counted(pool("fast")), OperatorSettings()).requests["detector", "fast"].key
        for s in (DETECTOR, change)
    )
    assert (before == after) is same


SIZED = session("s").sized("detector", {16: None, 32: None}, padding="-1")
CURVES = {
    "of the class": LatencyCurve(model="detector-s16", alpha_micros=1, beta_micros=1),
    "of the module": LatencyCurve(model="detector", alpha_micros=2, beta_micros=2),
    "of all": LatencyCurve(model="*", alpha_micros=3, beta_micros=3),
}


def test_each_size_class_has_a_profile_which_is_that_of_a_module_of_its_size() -> None:
    required = required_profiles(SIZED.build(), counted(pool("fast")), OperatorSettings())
    assert {pair: request.input.shape for pair, request in required.requests.items()} == {
        ("detector-s16", "fast"): (3, 32, 16),
        ("detector-s32", "fast"): (3, 32, 32),
    }
    fixed = required_profiles(session("t").model("detector").build(), counted(pool("fast")), OperatorSettings())
    assert required.keys["detector-s32", "fast"] == fixed.keys["detector", "fast"]


@pytest.mark.parametrize(
    ("curves", "want"),
    [
        pytest.param(("of the class", "of the module", "of all"), 1, id="its own"),
        pytest.param(("of the module", "of all"), 2, id="that of its module"),
        pytest.param(("of all",), 3, id="the one of all models"),
    ],
)
def test_a_size_class_on_emulated_accelerators_has_the_closest_curve(curves: tuple[str, ...], want: int) -> None:
    emulated = pool("fast").with_spec(emulation=Emulation(curves=tuple(CURVES[name] for name in curves)))
    required = required_profiles(SIZED.build(), counted(emulated), OperatorSettings())
    assert required.requests["detector-s16", "fast"].curve == (want, want)


def test_the_key_of_a_model_of_one_input_stays() -> None:
    """Stored profiles are found by it."""
    request = ProfileRequest(
        model=ModelSource(entrypoint="shop.models:detector"),
        input=TensorSpec(shape=(3, 224, 224)),
        blocks=10,
        batch_sizes=(1, 2, 4),
        pool="t4",
    )
    assert request.key == "bdd06dd4a34820c8"


def test_a_model_of_several_inputs_is_profiled_with_each_of_them() -> None:
    ids, mask = (NamedInput(name=name, shape=(128,), dtype=DType.INT64) for name in ("input_ids", "attention_mask"))

    def request(*inputs: NamedInput) -> ProfileRequest:
        module = Module(name="encoder", model=source("encoder"), inputs=inputs)
        wanting = session("texts").model("encoder").with_spec(modules=(module,))
        required = required_profiles(wanting.build(), counted(pool("fast")), OperatorSettings())
        return required.requests["encoder", "fast"]

    asked = request(ids, mask)
    assert (asked.input, asked.takes) == (None, (ids, mask))
    assert ProfileRequest.model_validate_json(asked.model_dump_json(by_alias=True)) == asked
    assert len({asked.key, request(ids).key, request(ids, mask.model_copy(update={"name": "mask"})).key}) == 3


def test_functions_need_no_profile() -> None:
    made = cluster(DETECTOR.function("crop").edge("detector", "crop"))
    made.run(10)
    assert sorted(started_runs(made)) == [("fast", 1), ("slow", 1)]


def test_an_existing_profile_is_not_made_again() -> None:
    made = cluster(DETECTOR)
    made.run(10)
    made.add(session("second").model("detector").build())
    made.delete(KEY)
    made.run(10)
    made.add(DETECTOR.build())
    made.run(10)
    assert sorted(started_runs(made)) == [("fast", 1), ("slow", 1)]


def test_sessions_of_a_namespace_share_running_profiles() -> None:
    made = cluster(DETECTOR, session("second").model("detector"))
    made.runner.script = {"slow": (RunPhase.FAILED, RunPhase.SUCCEEDED)}
    made.run(60)
    assert sorted(started_runs(made)) == [("fast", 1), ("slow", 1), ("slow", 2)]
    assert made.condition("traffic", "Profiled") == made.condition("second", "Profiled") == ("True", "ProfilesReady")


@pytest.mark.parametrize(
    ("mode", "want_most"),
    [pytest.param(SharingMode.WHOLE, 3, id="accelerators"), pytest.param(SharingMode.CPU, 1, id="shared cores")],
)
def test_runs_on_shared_cores_wait_for_each_other(mode: SharingMode, want_most: int) -> None:
    made = SimulatedCluster()
    three = session("traffic").model("detector").model("vehicle").model("person")
    made.add(pool("fast").with_spec(sharing=Sharing(mode=mode)).build(), three.build())
    most = 0
    for _ in range(60):
        made.look_once()
        made.now += timedelta(seconds=1)
        under_way = made.session("traffic").status.profiling
        most = max(most, sum(p.phase == "Running" and ("default", p.key) not in made.profiles for p in under_way))

    assert most == want_most
    assert len(made.runner.started) == 3
    assert made.condition("traffic", "Profiled") == ("True", "ProfilesReady")


def test_a_failed_run_is_repeated_with_growing_pauses() -> None:
    made = cluster(DETECTOR, pools=("fast",))
    made.runner.script = {"fast": (RunPhase.FAILED,)}
    starts: dict[float, int] = {}
    for second in range(120):
        made.look_once()
        made.now += timedelta(seconds=1)
        starts.setdefault(len(made.runner.started), second)
    assert [starts[n] for n in (1, 2, 3)] == sorted(starts[n] for n in (1, 2, 3))
    assert 19 <= starts[2] - starts[1] <= 24
    assert 39 <= starts[3] - starts[2] <= 44
    assert len(made.runner.started) == 3, "attempts are bounded"
    (progress,) = made.session("traffic").status.profiling
    assert (progress.phase, progress.attempt) == ("GivenUp", 3)


def test_a_run_that_hangs_is_stopped_and_counts_as_failed() -> None:
    made = cluster(DETECTOR, pools=("fast",))
    made.settings = OperatorSettings(profiling=ProfilingSettings(timeout_seconds=30, backoff_seconds=5))
    made.runner.script = {"fast": (RunPhase.RUNNING, RunPhase.SUCCEEDED)}
    made.run(60)
    assert started_runs(made) == [("fast", 1), ("fast", 2)]
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.runner.runs == {}


def test_a_run_that_hangs_does_not_delay_other_pools_after_its_time_limit() -> None:
    made = cluster(DETECTOR)
    made.settings = OperatorSettings(profiling=ProfilingSettings(timeout_seconds=30, backoff_seconds=1000))
    made.runner.script = {"slow": (RunPhase.RUNNING,)}
    made.run(25)
    assert made.condition("traffic", "Ready") == ("False", "Profiling")
    made.run(15)
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.condition("traffic", "Profiled") == ("False", "SomeProfilesMissing")


def other(**fields: Any) -> Callable[[ProfileRequest], Profile]:
    """Makes the profile of a request with other fields."""
    return lambda request: made_profile(request.model_copy(update=fields))


def many_blocks(request: ProfileRequest) -> Profile:
    """A profile that has the right request, and 64 blocks."""
    return other(blocks=64)(request).model_copy(update={"request": request, "key": request.key})


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        pytest.param(many_blocks, "it has 64 blocks, and the request at most 10", id="64 blocks"),
        pytest.param(other(blocks=1), "it is a profile of another blocks", id="another request of blocks"),
        pytest.param(other(batch_sizes=(1,)), "it has batch sizes [1], not [1, 2, 4, 8, 16]", id="batch sizes"),
        pytest.param(other(divisors=(2,)), "it has vGPU divisors [2], not [1]", id="vGPU divisors"),
        pytest.param(other(pool="a100"), "it is a profile of another pool", id="another pool"),
        pytest.param(other(model=source("vehicle")), "it is a profile of another model", id="another model"),
    ],
)
def test_a_result_that_is_not_of_its_request_is_not_used(
    forged: Callable[[ProfileRequest], Profile], says: str
) -> None:
    made = cluster(DETECTOR, pools=("fast",))
    made.settings = OperatorSettings(profiling=ProfilingSettings(attempts=1))
    made.runner.make = forged
    made.run(10)

    (profiled,) = [c for c in made.session("traffic").status.conditions if c.type == "Profiled"]
    assert (profiled.status, profiled.reason) == ("False", "ProfilingFailed")
    assert says in profiled.message
    assert made.profiles == {}


def test_a_late_profile_leads_to_a_new_plan() -> None:
    made = cluster(DETECTOR)
    made.runner.script = {"fast": (RunPhase.FAILED, RunPhase.SUCCEEDED)}
    made.run(15)
    assert [set(p.profiles) for p in made.problems] == [{("detector", "slow")}]
    made.run(30)
    assert set(made.problems[-1].profiles) == {("detector", "fast"), ("detector", "slow")}


def test_a_failing_session_does_not_affect_others() -> None:
    made = cluster(
        session("broken").model("classifier").with_spec(pools=("slow",)), DETECTOR.with_spec(pools=("fast",))
    )
    made.runner.script = {"slow": (RunPhase.FAILED,)}
    made.run(10)
    assert made.condition("broken", "Ready") == ("False", "ProfilingFailed")
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def annotated(built: InferenceSession, value: str) -> InferenceSession:
    meta = built.metadata.model_copy(update={"annotations": {RETRY_ANNOTATION: value}})
    return built.model_copy(update={"metadata": meta})


def test_a_profile_that_was_given_up_is_made_again_on_request() -> None:
    made = cluster(DETECTOR, pools=("fast",))
    made.runner.script = {"fast": (RunPhase.FAILED,)}
    made.run(100)
    assert made.condition("traffic", "Stalled") == ("True", "ProfilingFailed")

    made.runner.script = {}
    made.run(20)
    assert len(made.runner.started) == 3, "no retry without a request"
    made.add(annotated(DETECTOR.build(), "now"))
    made.run(20)
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.session("traffic").status.last_handled_retry == "now"
    assert made.runner.runs == {}, "failed runs are removed"


def test_a_lost_run_is_started_again() -> None:
    made = cluster(DETECTOR, pools=("fast",))
    made.runner.script = {"fast": (RunPhase.RUNNING,)}
    made.run(10)
    made.runner.runs.clear()
    made.run(3)
    assert started_runs(made) == [("fast", 1), ("fast", 1)]


def test_runs_that_are_no_longer_needed_are_stopped() -> None:
    made = cluster(DETECTOR)
    made.runner.script = {"fast": (RunPhase.RUNNING,), "slow": (RunPhase.RUNNING,)}
    made.run(5)
    made.add(DETECTOR.with_spec(pools=("slow",)).build())
    made.run(5)
    assert [request.pool for request in made.runner.runs.values()] == ["slow"]
    made.delete(KEY)
    made.run(5)
    assert made.runner.runs == {}
    assert made.sessions == {}


def test_a_run_that_another_session_needs_continues() -> None:
    made = cluster(DETECTOR, session("second").model("detector"), pools=("fast",))
    made.runner.script = {"fast": (RunPhase.RUNNING,)}
    made.run(5)
    made.delete(KEY)
    made.run(5)
    assert len(made.runner.runs) == 1
    assert len(made.runner.started) == 1
