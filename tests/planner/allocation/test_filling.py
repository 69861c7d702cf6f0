"""Plans for most throughput that need no search."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.allocation.test_dynamic_program import STOPPED, demands_of_two_pools, resources, solved, template

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.filling import filled
from partita_planner.allocation.relaxation import relax, rounded
from partita_planner.allocation.template_search import AllocationProblem, value_of
from partita_planner.allocation.throughput import highest_level


def test_what_is_left_over_serves_all_modules_alike() -> None:
    """Six GPUs: the second module's GPUs do half of what the first one's do."""
    whole = resources(x=6)
    demands = [ModuleDemand("a", 1, 1.0, (template(("x", 10.0)),)), ModuleDemand("b", 1, 1.0, (template(("x", 5.0)),))]
    relaxation = relax(demands, whole, AllocationObjective.THROUGHPUT, STOPPED, highest_level(demands, whole))
    assert relaxation is not None

    found = filled(ModuleDeployments(), demands, whole, relaxation)

    assert found is not None
    assert {m: [x.replicas for x in group] for m, group in found.items()} == {"a": [(2,)], "b": [(4,)]}


@settings(max_examples=60, deadline=None)
@given(demands=demands_of_two_pools(), x=st.integers(1, 12), y=st.integers(1, 12))
def test_filled_plans_fit_the_pools_and_lie_between_what_was_begun_and_the_optimum(
    demands: list[ModuleDemand], x: int, y: int
) -> None:
    whole = resources(x=x, y=y)
    relaxation = relax(demands, whole, AllocationObjective.THROUGHPUT, STOPPED, highest_level(demands, whole))
    assert relaxation is not None
    search = AllocationProblem(tuple(demands), whole, AllocationObjective.THROUGHPUT)
    most, _ = solved(demands, whole)

    for begun in (ModuleDeployments(), rounded(relaxation, demands, whole)):
        found = None if begun is None else filled(begun, demands, whole, relaxation)
        if found is not None and begun is not None:
            assert found.missing_gpus(whole.pools) == {}
            least = value_of(search, begun) if begun else 0.0
            assert least * (1 - 1e-9) <= value_of(search, found) <= (most or 0.0) * (1 + 1e-9)
