"""The SLO that a slow machine can keep."""

import pytest
from tests.builders import SessionBuilder, pool, profile, session

from partita_devtools.demo.possible_slo import SLO_FACTOR, possible_slo_ms
from partita_planner.planning import plan
from partita_planner.problem import Planned
from partita_planner.several_sessions.offline import offline_problem

POOLS = [pool("fast").gpus(2).build()]
PROFILES = [profile("detector").linear(1000, 400_000).build()]
CHAIN = session("shop").model("detector").rate(1)


def test_the_session_has_a_plan_with_it() -> None:
    found = possible_slo_ms(CHAIN.slo(100).build(), POOLS, PROFILES)

    assert found is not None
    assert found % 100 == 0
    assert found >= SLO_FACTOR * 400, "the model takes 400 ms"
    outcome = plan(offline_problem(POOLS, CHAIN.slo(found).build(), PROFILES, {"fast": 2}))
    assert isinstance(outcome, Planned)


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(CHAIN.slo(10_000), id="the declared SLO is possible"),
        pytest.param(session("shop").model("unknown").rate(1).slo(100), id="a model without a profile"),
    ],
)
def test_no_other_slo_is_proposed(session: SessionBuilder) -> None:
    assert possible_slo_ms(session.build(), POOLS, PROFILES) is None
