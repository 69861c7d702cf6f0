"""The commands that messages of conditions propose, parsed out of the conditions of simulated sessions and pools."""

import re
from collections.abc import Iterable, Mapping

from tests.operator.reconcile import elastic_cluster
from tests.operator.reconcile.pool.cut_nodes import Nodes, approved
from tests.operator.reconcile.session import test_conditions, test_holds
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.conditions import Condition
from partita_operator.ports import RunPhase


def commands_in(conditions: Iterable[Condition]) -> set[str]:
    """All commands in the messages of some conditions."""
    return {command for c in conditions for command in re.findall(r"`((?:kubectl|partita) [^`]+)`", c.message)}


def _of_session(made: SimulatedCluster) -> str:
    (command,) = commands_in(made.session("traffic").status.conditions)
    return command


def _of_pool(nodes: Nodes) -> str:
    (command,) = commands_in(nodes.pool.status.conditions)
    return command


def _of_elastic_pool(made: SimulatedCluster) -> str:
    (command,) = commands_in(elastic_cluster.fast(made).status.conditions)
    return command


def _paused() -> SimulatedCluster:
    made = test_holds.settled()
    test_holds.annotate(made, paused="load test")
    return made


def _late() -> SimulatedCluster:
    made = test_conditions.after(10, test_conditions.cluster(test_conditions.DETECTOR))
    made.engine.reported["default/traffic"] = test_conditions.signals(None, 50, 0.5)
    made.run(2)
    return made


def _engine_gone() -> SimulatedCluster:
    made = test_conditions.deletion_waits()
    made.engine.away = "The Ray dashboard does not answer."
    made.run(5)
    return made


def _to_be_approved() -> Nodes:
    nodes = Nodes()
    nodes.run(30)
    return nodes


def _relabelled() -> Nodes:
    nodes = approved()
    nodes.run(60)
    nodes.relabel("b", nvidia_com__mig_config="all-1g.10gb")
    nodes.run(1)
    return nodes


def proposed_commands() -> Mapping[str, str]:
    """One real command of each function of `partita_operator.reconcile.commands`, by the function's name."""
    return {
        "approve_plan": _of_session(test_holds.settled(test_holds.MANUAL)),
        "approve_partitioning": _of_pool(_to_be_approved()),
        "retry_profiling": _of_session(test_conditions.with_runs(RunPhase.FAILED, seconds=100)),
        "explain": _of_session(_late()),
        "resume": _of_session(_paused()),
        "undo_rollback": _of_session(test_holds.rolled_back()[0]),
        "remove_finalizers": _of_session(_engine_gone()),
        "remove_node_label": _of_pool(_relabelled()),
        "waiting_pods": _of_elastic_pool(elastic_cluster.elastic_cluster(0)),
        "describe_pool": _of_session(
            test_conditions.after(5, test_conditions.cluster(test_conditions.DETECTOR, fast=0, slow=0))
        ),
    }
