"""A replayed trace gives the same decisions; a changed trace shows the difference."""

import json
from collections.abc import Callable

import pytest
from tests.builders import session
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.trace import RecordedCore
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.failures import WorkerFailure
from partita_runtime.simulation.emulation.noise import Delays, Noise
from partita_runtime.simulation.simulator import simulate_scheduling
from partita_runtime.simulation.trace_replay import replay

PLAN = plan_of(
    module("m").pipeline(
        4, stage("fast", replicas=2, alpha=500, beta=1000, output_bytes=50_000), stage("slow", replicas=3, alpha=900)
    ),
    bandwidth={"fast": 1e9, "slow": 1e9},
)


@pytest.fixture(scope="module")
def trace() -> list[str]:
    """One second of a service with failures."""
    lines: list[str] = []
    simulate_scheduling(
        session("s").slo(20).model("m").build().spec,
        PLAN,
        arrivals_at(ArrivalProcess.POISSON, 1200),
        1,
        1,
        noise=Noise(spread=0.2, error_rate=0.02),
        failures=[WorkerFailure("m/a/0/0", 0.3, 0.2), WorkerFailure("m/a/1/2", 0.5)],
        delays=Delays(300, 10),
        core=RecordedCore(PLAN, lines.append),
    )
    return lines


def test_replay_gives_the_same_decisions(trace: list[str]) -> None:
    replayed = replay(trace)

    assert replayed.difference is None
    assert replayed.calls == len(trace) - 1
    assert replayed.decisions > 300
    assert replayed.signals.modules["m"].arrived == sum('["arrive"' in line for line in trace)


def test_every_kind_of_call_is_recorded_and_replayed() -> None:
    lines: list[str] = []
    core = RecordedCore(PLAN, lines.append)
    first, second = core.signals(0).stages
    core.set_delays(10, 1)
    core.worker_joined(first, "w0", "n0", 0)
    core.worker_joined(second, "w1", "n1", 0, PLAN.name)
    for request_id in range(5):
        core.arrive(request_id, "m", 50_000 + request_id, request_id)
    core.cancel(4, 10)
    (dispatch,) = core.advance(10)
    assert isinstance(dispatch, Dispatch)
    core.completed(dispatch.batch_id, 0, 3000)
    core.completed(dispatch.batch_id, 1, 9000, 4000)
    core.arrive(9, "m", 20_000, 9000)
    assert core.advance(9000) == []
    (again,) = core.advance(core.next_wakeup() or 0)
    assert isinstance(again, Dispatch)
    core.failed(again.batch_id, 15_000, "out of memory")
    core.worker_draining("w0", 15_000)
    core.worker_lost("w1", 15_000)
    core.lost(again.batch_id, 15_000)
    core.switch_plan(PLAN.model_copy(update={"name": "next"}), 15_000)
    drops = core.advance(60_000)

    assert len(drops) == 1
    replayed = replay(lines)
    assert replayed.difference is None
    assert replayed.signals == core.signals(60_000)
    names = {json.loads(line)[0] for line in lines}
    assert names == {
        "plan", "set_delays", "worker_joined", "worker_draining", "worker_lost", "arrive", "cancel", "completed",
        "failed", "lost", "switch_plan", "advance",
    }  # fmt: skip


def test_first_difference_is_shown(trace: list[str]) -> None:
    line = next(i for i, text in enumerate(trace) if '"dispatch"' in text)
    call = json.loads(trace[line])
    recorded_worker = call[2][0][5][0]
    call[2][0][5][0] = "somebody else"

    difference = replay([*trace[:line], json.dumps(call), *trace[line + 1 :]]).difference

    assert difference is not None
    assert difference.line == line + 1
    assert difference.now == call[1]
    (recorded, replayed) = difference.recorded[0], difference.replayed[0]
    assert isinstance(recorded, Dispatch)
    assert isinstance(replayed, Dispatch)
    assert (recorded.path[0], replayed.path[0]) == ("somebody else", recorded_worker)


@pytest.mark.parametrize(
    ("spoil", "want_message"),
    [
        pytest.param(lambda _: [], "line 1: invalid JSON", id="empty"),
        pytest.param(lambda lines: lines[1:], "line 1: a trace begins with the plan", id="without a plan"),
        pytest.param(lambda lines: [lines[0], "{"], "line 2: invalid JSON", id="no JSON"),
        pytest.param(lambda lines: [lines[0], "{}"], "line 2: not a JSON array", id="not an array"),
        pytest.param(lambda lines: [lines[0], '["explode",1]'], "has no call 'explode'", id="not a call"),
        pytest.param(lambda lines: [lines[0], '["advance",1]'], "line 2: ", id="arguments missing"),
        pytest.param(lambda lines: [lines[0], '["arrive",1]'], "line 2: ", id="too few arguments"),
        pytest.param(lambda lines: [lines[0], '["advance",1,[["drop",1,"m","Odd",""]]]'], "Odd", id="unknown reason"),
    ],
)
def test_text_that_is_not_a_trace(trace: list[str], spoil: Callable[[list[str]], list[str]], want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        replay(spoil(trace))
