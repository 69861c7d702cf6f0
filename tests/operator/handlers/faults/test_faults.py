"""The operator on a real API server with faults: bad manifests, failing runs, and lost components."""

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, condition, eventually, pool, reason, session

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.ports import RunPhase

pytestmark = pytest.mark.apiserver


def two_modules(**edges: object) -> Json:
    made = session("traffic", **edges)
    made["spec"]["modules"].append({**made["spec"]["modules"][0], "name": "classifier"})
    return made


def with_a_wrong_key() -> Json:
    """A session that the API server accepts, because a schema does not check the keys of a map."""
    return session("traffic", batching={"modules": {"Detector": "Eager"}})


@pytest.mark.parametrize(
    ("manifest", "want_reason", "want_words"),
    [
        pytest.param(
            two_modules(edges=[{"from": "detector", "to": "classifier"}, {"from": "classifier", "to": "detector"}]),
            "InvalidSpec",
            "cycle",
            id="cycle",
        ),
        pytest.param(
            with_a_wrong_key(),
            "InvalidSpec",
            "batching.modules.Detector",
            id="wrong spec that the schema accepts",
        ),
        pytest.param(session("traffic", pools=["h100"]), "PoolNotFound", "h100", id="unknown pool"),
        pytest.param(
            session("traffic", poolSelector={"matchLabels": {"tier": "gold"}}),
            "NoPoolSelected",
            "tier=gold",
            id="unknown label",
        ),
        pytest.param(
            session("traffic", rate={"requestsPerSecond": 1_000_000}),
            "InsufficientCapacity",
            "",
            id="rate too high",
        ),
    ],
)
async def test_a_wrong_session_reports_the_error(
    namespace: Kubectl, operators: Operators, manifest: Json, want_reason: str, want_words: str
) -> None:
    namespace.apply(pool("fast"), manifest)

    async with operators.running():
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", want_reason)
        )
        assert want_words in condition(found, "Ready")["message"]
        assert condition(found, "Stalled")["status"] == "True"
        assert operators.engine.applied == {}


async def test_a_wrong_edit_keeps_the_current_plan(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        before = operators.engine.applied.copy()
        namespace.apply(with_a_wrong_key())
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "InvalidSpec")
        )
        assert "keeps serving" in condition(found, "Ready")["message"]
        assert {k: s.plan.metadata.name for k, s in operators.engine.applied.items()} == {
            k: s.plan.metadata.name for k, s in before.items()
        }


async def test_a_pool_that_is_created_later_is_found(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(session("traffic", pools=["fast"]))

    async with operators.running():
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "PoolNotFound"))
        namespace.apply(pool("fast"))
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")


async def test_a_pool_in_use_is_deleted_only_after_its_session(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        namespace("delete", "gpool", "fast", "--wait=false")
        found = await eventually(lambda: namespace.get("gpool", "fast"), lambda p: reason(p) == ("False", "InUse"))
        assert f"{namespace.namespace}/traffic" in condition(found, "Ready")["message"]
        await namespace.wait("delete", "isess/traffic", "--timeout=60s")
        await eventually(lambda: namespace.get("gpool", "fast"), lambda p: p is None)


async def test_a_pool_counts_the_accelerators_of_its_nodes(
    namespace: Kubectl, cluster: Kubectl, operators: Operators
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-node", "labels": {"gpu": "h100"}}}
    status = (
        '{"status":{"allocatable":{"nvidia.com/gpu":"3"},"capacity":{"nvidia.com/gpu":"3"},'
        '"conditions":[{"type":"Ready","status":"True"}]}}'
    )
    namespace.apply(node, pool("fast", count=None, nodeSelector={"matchLabels": {"gpu": "h100"}}))
    try:
        async with operators.running():
            await eventually(lambda: namespace.get("gpool", "fast"), lambda p: reason(p) == ("False", "NoAccelerators"))
            cluster("patch", "node", "gpu-node", "--subresource=status", "--type=strategic", "-p", status)
            found = await eventually(lambda: namespace.get("gpool", "fast"), lambda p: reason(p)[0] == "True")
            assert found is not None
            assert (found["status"]["nodes"], found["status"]["capacity"]) == (1, 3)
    finally:
        cluster("delete", "node", "gpu-node")


async def test_a_failing_run_is_repeated(namespace: Kubectl, operators: Operators) -> None:
    operators.runner.script = {"fast": (RunPhase.FAILED, RunPhase.SUCCEEDED)}
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        assert [attempt for _, _, attempt in operators.runner.started] == [1, 2]
        await eventually(lambda: dict(operators.runner.runs), lambda runs: not runs)


async def test_a_run_that_always_fails_stalls_only_its_session(namespace: Kubectl, operators: Operators) -> None:
    operators.runner.script = {"slow": (RunPhase.FAILED,)}
    namespace.apply(pool("fast"), pool("slow"), session("broken", pools=["slow"]), session("traffic", pools=["fast"]))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        found = await eventually(
            lambda: namespace.get("isess", "broken"),
            lambda s: condition(s, "Stalled").get("status") == "True",
        )
        assert "the model wants 4 channels" in condition(found, "Ready")["message"]
        assert [attempt for _, _, attempt in operators.runner.started if attempt > 1] == [2, 3]

        operators.runner.script = {}
        namespace("annotate", "isess", "broken", "partita.dev/retry=now")
        await namespace.wait("wait", "isess/broken", "--for=condition=Ready", "--timeout=60s")


async def test_a_run_that_hangs_is_stopped(namespace: Kubectl, operators: Operators) -> None:
    profiling = operators.settings.profiling.model_copy(update={"timeout_seconds": 2})
    operators.settings = operators.settings.model_copy(update={"profiling": profiling})
    operators.runner.script = {"fast": (RunPhase.RUNNING, RunPhase.SUCCEEDED)}
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        await eventually(lambda: dict(operators.runner.runs), lambda runs: not runs)


async def test_an_operator_waits_for_an_engine_that_is_away(namespace: Kubectl, operators: Operators) -> None:
    operators.engine.away = "The Ray dashboard at http://ray:8265 does not answer."
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("Unknown", "EngineUnavailable")
        )
        assert "http://ray:8265" in condition(found, "Ready")["message"]
        operators.engine.away = ""
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")


async def test_a_restarted_operator_changes_nothing(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))
    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
    before = namespace.get("isess", "traffic")
    operators.engine.applied.clear()

    async with operators.running():
        await eventually(lambda: dict(operators.engine.applied), lambda applied: applied)
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
    after = namespace.get("isess", "traffic")
    assert before is not None
    assert after is not None
    assert after["status"]["currentPlan"] == before["status"]["currentPlan"]
    assert len(operators.runner.started) == 1
    assert len(operators.solver.problems) == 1
    assert len(namespace.list("pplan")) == 1


async def test_changes_while_no_operator_runs_are_handled_after_its_start(
    namespace: Kubectl, operators: Operators
) -> None:
    namespace.apply(pool("fast"), session("going"), session("gone"), session("changing"))
    async with operators.running():
        await namespace.wait("wait", "isess", "--all", "--for=condition=Ready", "--timeout=60s")
    namespace("delete", "isess", "going", "--wait=false")
    namespace("patch", "isess", "gone", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    namespace("delete", "isess", "gone")
    namespace.apply(session("changing", slo={"latencyMs": 150}), session("new"))

    async with operators.running():
        await eventually(
            lambda: set(operators.engine.applied),
            lambda keys: keys == {f"{namespace.namespace}/{name}" for name in ("changing", "new")},
        )
        await eventually(lambda: namespace.get("isess", "going"), lambda s: s is None)
        await eventually(
            lambda: namespace.get("isess", "changing"),
            lambda s: condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
        )


@pytest.mark.slow
async def test_an_operator_waits_for_an_api_server_that_hangs(
    namespace: Kubectl, operators: Operators, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    namespace.apply(pool("fast"), session("traffic"))
    async with operators.running():
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        control_plane.pause_api_server()
        try:
            await eventually(lambda: caplog.text, lambda log: "API server failed several times" in log, seconds=120)
            assert operators.engine.applied
        finally:
            control_plane.resume_api_server()
        namespace.apply(session("traffic", slo={"latencyMs": 150}))
        await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
        )


async def test_an_operator_waits_for_an_api_server_that_dies(
    namespace: Kubectl, operators: Operators, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    namespace.apply(pool("fast"), session("traffic"))
    control_plane.kill_api_server()
    try:
        async with operators.running():
            await eventually(lambda: caplog.text, lambda log: "waiting for the API server" in log)
            control_plane.restart_api_server()
            await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=90s")

            control_plane.restart_api_server()
            namespace.apply(session("second"))
            await namespace.wait("wait", "isess/second", "--for=condition=Ready", "--timeout=90s")
    finally:
        if not control_plane.is_running():
            control_plane.restart_api_server()
