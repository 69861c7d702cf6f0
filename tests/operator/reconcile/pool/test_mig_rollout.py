"""Cutting nodes into MIG slices: from their labels to the next steps, with the tests' own clock."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pool, session
from tests.operator.mig_manager_double import MigManagerDouble
from tests.operator.reconcile.pool.cut_nodes import GFD, MIG, Nodes, approved, node, vision

from partita_api.conditions import ConditionType
from partita_api.gpupool import GPUPoolStatus
from partita_operator.ports import StepKind
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, DRAINING, MIG_CONFIG, MIG_STATE
from partita_operator.settings.mig import MigSettings


def test_no_node_changes_before_approval() -> None:
    nodes = Nodes()
    before = dict(nodes.nodes)
    nodes.run()
    assert nodes.nodes == before
    assert nodes.condition == ("False", "AwaitingApproval")
    assert "partita.dev/approved-plan=vision-" in nodes.message
    assert nodes.pool.status.partitioning is not None
    assert nodes.pool.status.partitioning.waiting_nodes == ("a", "b", "c")
    assert nodes.published, "the configurations are published before approval; that changes no node"


def test_an_approval_is_for_one_change_only() -> None:
    nodes = approved()
    nodes.pool = nodes.pool.model_copy(
        update={"spec": vision(layouts=[{"nodes": 3, "gpus": [{"count": 1, "slices": {"7g.80gb": 1}}]}]).spec}
    )
    nodes.run()
    assert nodes.condition == ("False", "AwaitingApproval")
    assert nodes.steps == []


@pytest.mark.parametrize("most", [1, 2, 3])
def test_nodes_are_cut_a_few_at_a_time(most: int) -> None:
    nodes = approved(pool=vision(maxUnavailable=most))
    nodes.run()
    assert nodes.cut == ["a", "b", "c"]
    assert nodes.most_drained == most
    assert nodes.condition == ("True", "Partitioned")
    assert not any(DRAINING in n.labels for n in nodes.nodes.values())
    per_node = [[kind for kind, name in nodes.steps if name == each] for each in ("a", "b", "c")]
    assert per_node == [[StepKind.DRAIN, StepKind.CUT, StepKind.FINISH]] * 3


def test_automatic_changes_need_no_approval() -> None:
    nodes = Nodes(pool=vision(approval="Automatic"))
    nodes.run()
    assert nodes.cut == ["a", "b", "c"]


def test_cut_nodes_stay_cut() -> None:
    nodes = approved()
    nodes.run()
    done = len(nodes.steps)
    status = nodes.pool.status
    nodes.run(5)
    assert len(nodes.steps) == done
    assert nodes.pool.status == status


def test_no_node_is_labelled_before_mig_manager_has_the_configurations() -> None:
    nodes = approved()
    nodes.run(12)
    assert nodes.steps == [], "a kubelet may take 60 s to deliver a ConfigMap to a pod"
    nodes.run(3)
    assert nodes.steps == [(StepKind.DRAIN, "a")]


@pytest.mark.parametrize("killed_after", range(0, 30, 2))
def test_a_new_operator_continues_where_the_last_one_was_killed(killed_after: int) -> None:
    """Only labels and status remain, or only labels."""
    nodes = approved(settings=MigSettings(enabled=True, settle_seconds=0))
    nodes.run(killed_after)
    nodes.pool = nodes.pool.model_copy(update={"status": GPUPoolStatus()})
    nodes.run()
    assert nodes.cut == ["a", "b", "c"]
    assert nodes.most_drained == 1


def test_replicas_move_by_themselves_if_other_nodes_have_room() -> None:
    """If sessions hold more than the remaining accelerators, their replicas stay for drainSeconds."""
    nodes = approved(replicas={"a": 1}, pool=vision(drainSeconds=120))
    other = pool("whole").on_nodes({"gpus": "h100"}).build()
    full = other.model_copy(update={"status": GPUPoolStatus(capacity=4, allocated="6")})  # type: ignore[arg-type]
    nodes.others = [full]
    nodes.run(30)
    assert nodes.steps == [(StepKind.DRAIN, "a")]
    drains = nodes.message
    assert "draining of a began at 2026-01-01T00:01:10Z (pods of Partita on it: 1)" in drains
    nodes.run(5)
    assert nodes.message == drains, "the status changes although nothing happens"
    nodes.run(10)
    assert nodes.steps[:3] == [(StepKind.DRAIN, "a"), (StepKind.EVICT, "a"), (StepKind.CUT, "a")]

    nodes = approved(replicas={"a": 1}, pool=vision(drainSeconds=86_400))
    nodes.others = [other.model_copy(update={"status": GPUPoolStatus(capacity=4, allocated="4")})]  # type: ignore[arg-type]
    nodes.run()
    assert nodes.steps[:3] == [(StepKind.DRAIN, "a"), (StepKind.EVICT, "a"), (StepKind.CUT, "a")]


def test_a_node_that_fails_stops_the_others() -> None:
    nodes = approved(mig_manager=MigManagerDouble(fails={"b"}))
    nodes.run()
    assert nodes.cut == ["a"]
    assert nodes.condition == ("False", "PartitioningFailed")
    assert "mig-manager failed on b" in nodes.message
    assert not any(name == "c" for _, name in nodes.steps)

    nodes.mig_manager.fails.clear()
    nodes.mig_manager.restart("b")
    nodes.run()
    assert nodes.cut == ["a", "b", "c"]


def test_the_operator_waits_for_a_node_that_reboots() -> None:
    nodes = approved(mig_manager=MigManagerDouble(reboots={"a"}, takes=6))
    nodes.run(20)
    assert nodes.nodes["a"].labels[MIG_STATE] == "rebooting"
    assert "mig-manager: rebooting" in nodes.message
    nodes.run()
    assert nodes.cut == ["a", "b", "c"]


def test_the_success_of_an_earlier_configuration_does_not_count() -> None:
    nodes = approved(mig_manager=MigManagerDouble(takes=8))
    nodes.relabel("a", nvidia_com__mig_config="all-disabled", nvidia_com__mig_config_state="success")
    nodes.run(19)
    assert nodes.nodes["a"].labels[MIG_CONFIG].startswith("vision-")
    assert DRAINING in nodes.nodes["a"].labels
    assert not any(kind is StepKind.FINISH for kind, _ in nodes.steps)


def test_labels_that_other_clients_change_are_kept() -> None:
    nodes = approved()
    nodes.run()
    nodes.relabel("b", nvidia_com__mig_config="all-1g.10gb")
    done = len(nodes.steps)
    nodes.run()
    assert nodes.nodes["b"].labels[MIG_CONFIG] == "all-1g.10gb"
    assert len(nodes.steps) == done
    assert nodes.condition == ("False", "LabelsChanged")
    assert "`kubectl label node b partita.dev/mig-config-`" in nodes.message

    given_back = {k: v for k, v in nodes.nodes["b"].labels.items() if k != CUT_AS}
    nodes.nodes["b"] = replace(nodes.nodes["b"], labels=given_back)
    nodes.run()
    assert nodes.condition == ("True", "Partitioned")


def test_with_a_new_layout_nodes_keep_their_configuration_until_their_turn() -> None:
    nodes = approved()
    nodes.run()
    old = nodes.nodes["c"].labels[MIG_CONFIG]
    layouts = [*MIG["layouts"], {"nodes": 1, "gpus": [{"count": 2, "slices": {"3g.40gb": 2}}]}]
    layouts[0] = {**layouts[0], "nodes": 2}
    nodes.pool = nodes.pool.model_copy(update={"spec": vision(layouts=layouts).spec})
    nodes.approve()
    nodes.steps.clear()
    nodes.run()
    assert nodes.cut == ["a", "b"]
    assert nodes.nodes["c"].allocatable == {"nvidia.com/mig-3g.40gb": 4}
    assert {name for _, name in nodes.steps} == {"c"}
    assert old in (nodes.published or {}), "two nodes still have it"


def test_unused_configurations_are_removed() -> None:
    nodes = approved()
    nodes.run()
    (old,) = {n.labels[MIG_CONFIG] for n in nodes.nodes.values()}
    nodes.pool = nodes.pool.model_copy(
        update={"spec": vision(layouts=[{"nodes": 3, "gpus": [{"count": 2, "slices": {"3g.40gb": 2}}]}]).spec}
    )
    nodes.approve()
    nodes.published = {**(nodes.published or {}), "other-0123abcd": [{"devices": "all", "mig-enabled": False}]}
    nodes.run(100)
    assert old not in (nodes.published or {})
    assert {"all-disabled", "other-0123abcd"} < set(nodes.published or {})


def test_nodes_that_are_no_longer_needed_are_released() -> None:
    nodes = approved(replicas={"a": 1}, pool=vision(drainSeconds=86_400))
    nodes.others = [
        pool("whole")
        .on_nodes({"gpus": "h100"})
        .build()
        .model_copy(
            update={"status": GPUPoolStatus(capacity=0, allocated="2")}  # type: ignore[arg-type]
        )
    ]
    nodes.run(20)
    assert DRAINING in nodes.nodes["a"].labels
    nodes.pool = nodes.pool.model_copy(update={"spec": nodes.pool.spec.model_copy(update={"mig": None})})
    nodes.run(2)
    assert nodes.nodes["a"].labels == GFD
    assert all(c.type != ConditionType.PARTITIONED for c in nodes.pool.status.conditions)


@pytest.mark.parametrize(
    ("labels", "want_words"),
    [
        pytest.param({"nvidia_com__mig_capable": "false"}, "mig.capable=true", id="no MIG"),
        pytest.param({"nvidia_com__mig_strategy": "single"}, "mig.strategy=mixed", id="another strategy"),
        pytest.param({"nvidia_com__gpu_count": "8"}, "has 8 GPUs", id="another number of GPUs"),
    ],
)
def test_nodes_that_cannot_be_cut_do_not_change(labels: dict[str, str], want_words: str) -> None:
    nodes = approved()
    nodes.relabel("b", **labels)
    nodes.run()
    assert nodes.cut == ["a", "c"]
    assert not any(name == "b" for _, name in nodes.steps)
    assert nodes.condition == ("False", "NotEnoughNodes")
    assert "b " in nodes.message
    assert want_words in nodes.message


def test_mps_and_mig_are_not_mixed_on_a_node() -> None:
    nodes = approved()
    nodes.nodes["b"] = node("b", **{"nvidia.com/gpu.sharing-strategy": "mps"})
    nodes.run()
    assert nodes.cut == ["a", "c"]
    assert "(mps), which excludes MIG" in nodes.message
    assert "nvidia.com/device-plugin.config" in nodes.message

    nodes = approved(others=[pool("shared").mps(4).on_nodes({"gpus": "h100"}).build()])
    nodes.run()
    assert nodes.steps == []
    assert "GPUPool shared, which divides GPUs by MPS" in nodes.message


def test_a_node_is_cut_by_one_pool_only() -> None:
    first = approved(pool=vision(layouts=[{**MIG["layouts"][0], "nodes": 1}]))
    first.run()
    rival = vision()
    rival = rival.model_copy(update={"metadata": rival.metadata.model_copy(update={"name": "rival"})})
    second = Nodes(pool=rival.model_copy(), nodes=first.nodes, others=[first.pool])
    second.run(2)
    assert second.pool.status.partitioning is not None
    assert second.pool.status.partitioning.waiting_nodes == ("b", "c")


def test_a_node_waits_for_sessions_that_cannot_be_drained() -> None:
    """An existing Ray cluster does not report the Kubernetes node of a replica."""
    nodes = approved(others=[pool("whole").on_nodes({"gpus": "h100"}).build()])
    traffic = session("traffic").model("detector").build()
    plan_holds = {"default/traffic": {"whole": 1}}
    nodes.sessions = [traffic]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "partita_operator.reconcile.pool.mig_rollout.holding", lambda s, _: plan_holds.get(s.key, {}), raising=True
        )
        nodes.run(40)
        assert nodes.steps == [(StepKind.DRAIN, "a")]
        assert "default/traffic of engine Ray" in nodes.message
        plan_holds.clear()
        nodes.run()
    assert nodes.cut == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("fields", "want", "want_words"),
    [
        pytest.param({"settings": MigSettings()}, ("False", "PartitioningDisabled"), "mig.enabled", id="not enabled"),
        pytest.param(
            {"pool": vision(layouts=[{"nodes": 1, "gpus": [{"count": 1, "slices": {"3g.40gb": 2, "1g.10gb": 1}}]}])},
            ("False", "InvalidSpec"),
            "do not fit on one H100-80GB",
            id="slices that do not fit",
        ),
        pytest.param(
            {"pool": vision(product="B300")},
            ("False", "InvalidSpec"),
            "product 'B300' is unknown",
            id="unknown product",
        ),
        pytest.param(
            {"published": None, "problem": "ConfigMap x is none of Partita's."},
            ("False", "PartitioningFailed"),
            "none of Partita's",
            id="ConfigMap of another owner",
        ),
    ],
)
def test_problems_that_need_a_person(fields: dict[str, Any], want: tuple[str, str], want_words: str) -> None:
    nodes = approved(**{"pool": vision(), **fields}) if "pool" not in fields else Nodes(**fields)
    nodes.run(30)
    assert nodes.condition == want
    assert want_words in nodes.message
    assert nodes.steps == []
    stalled = next(c for c in nodes.pool.status.conditions if c.type == ConditionType.STALLED)
    assert (str(stalled.status), stalled.reason) == ("True", want[1])
