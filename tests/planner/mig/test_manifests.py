"""A packing as mig-parted configurations and pools."""

import time

import pytest
from tests.builders import profile, session

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import SharingMode
from partita_planner.mig.manifests import FLEET_LABEL, Fleet, mig_parted_config, node_configs, slice_pools
from partita_planner.mig.packing import Packing, fewest_gpus, requested_slices
from partita_planner.mig.products import known_products
from partita_planner.planning import plan
from partita_planner.problem import Planned
from partita_planner.several_sessions.offline import plan_offline
from partita_planner.solver.deadline import Deadline

H100 = known_products().product("H100-80GB")


def packed(**desired: int) -> Packing:
    slices = {name.replace("_", "."): count for name, count in desired.items()}
    found = fewest_gpus(H100, requested_slices(slices), Deadline.after(60, time.perf_counter))
    assert isinstance(found, Packing)
    return found


def test_equal_nodes_share_a_configuration() -> None:
    configs = node_configs(packed(**{"7g_80gb": 6}), Fleet("f", gpus_per_node=2))

    assert [(c.name, c.nodes) for c in configs] == [("f-1", 3)]


def test_configuration_of_a_node() -> None:
    """The last node's other GPU stays whole."""
    packing = packed(**{"4g_40gb": 2, "3g_40gb": 2, "7g_80gb": 1})
    fleet = Fleet("f", gpus_per_node=4)

    config = mig_parted_config(node_configs(packing, fleet), fleet)

    assert config["version"] == "v1"
    (entries,) = config["mig-configs"].values()
    by_devices = {tuple(e["devices"]): e for e in entries}
    assert sorted(d for devices in by_devices for d in devices) == [0, 1, 2, 3]
    assert by_devices[(3,)] == {"devices": [3], "mig-enabled": False}
    cut = {tuple(sorted(e["mig-devices"].items())) for e in entries if e["mig-enabled"]}
    assert cut == {(("3g.40gb", 1), ("4g.40gb", 1)), (("7g.80gb", 1),)}


def test_a_pool_for_each_profile() -> None:
    packing = packed(**{"4g_40gb": 3, "3g_40gb": 3})
    fleet = Fleet("f", gpus_per_node=2, price_per_hour=Quantity("2.1"), bandwidth=Quantity("100G"))

    pools = {pool.metadata.name: pool.spec for pool in slice_pools(packing, fleet)}

    assert set(pools) == {"f-3g-40gb", "f-4g-40gb"}
    spec = pools["f-3g-40gb"]
    assert spec.resource_name == "nvidia.com/mig-3g.40gb"
    assert (spec.count, spec.gpus_per_node, spec.bandwidth) == (3, 2, "100G")
    assert spec.price_per_hour.value == Quantity("0.9").value
    assert spec.memory == H100.slice("3g.40gb").memory
    assert spec.sharing.mode is SharingMode.MIG
    assert spec.node_selector.match_labels == {FLEET_LABEL: "f"}


@pytest.mark.parametrize("gpus", [1, 3, 8])
def test_pools_count_every_slice(gpus: int) -> None:
    """Those that came free with the layouts, too."""
    packing = packed(**{"2g_20gb": 3 * gpus})

    pools = slice_pools(packing, Fleet("f"))

    assert {p.spec.resource_name.removeprefix("nvidia.com/mig-"): p.spec.count for p in pools} == packing.slices
    assert sum(packing.spare.values()) == gpus


def test_planner_takes_slices_for_accelerators() -> None:
    packing = packed(**{"3g_40gb": 2})
    pools = slice_pools(packing, Fleet("f"))
    profiles = [profile("m").on("f-3g-40gb").linear(1000, 5000).build()]

    ((_, outcome),) = plan_offline(pools, [session("s").slo(200).rate(100).model("m").build()], profiles, plan)

    assert isinstance(outcome, Planned), outcome
    assert set(outcome.plan.gpus()) == {"f-3g-40gb"}
