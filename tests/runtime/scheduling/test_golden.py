"""The core makes the recorded decisions: an optimization must not change them."""

import pytest
from tests.runtime.scheduling.golden import CASES, decisions, digests, name_of, recorded

RECORDED = recorded()


@pytest.mark.parametrize(("scenario", "policy"), [pytest.param(*case, id=name_of(*case)) for case in CASES])
def test_decisions_equal_the_recorded_ones(scenario: str, policy: str) -> None:
    lines = decisions(scenario, policy)

    got, want = digests(lines), RECORDED[name_of(scenario, policy)]
    same = next((i for i, (one, other) in enumerate(zip(got, want, strict=False)) if i and one != other), len(got)) - 1
    after = "\n".join(lines[100 * same : 100 * same + 20])
    assert got == want, f"the first {100 * same} decisions are the same; then one of these differs:\n{after}"
