"""Which replica moves to spread a stage over the nodes, and when no replica moves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, cycle

import pytest
from tests.operator.engines.serve_model import SESSION, application, frontend_config, stage_config

from partita_operator.engines.app_config import AppConfig, configured_relocation
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.placement import RayNode
from partita_operator.engines.ray.spreading import (
    MOST_WITHOUT_EFFECT,
    SETTLED_SECONDS,
    spread,
    spread_if_able,
    with_relocations,
)
from partita_operator.engines.serve_state import ServeReplica, ServeState
from partita_runtime.serving.deploy.relocation import STAND_IN_SECONDS

NOW = 10_000.0
POOL = "a"


def nodes(*slots: float, started: float = 0.0) -> list[RayNode]:
    """Nodes n0, n1, ... with these numbers of units of the pool's resource."""
    return [RayNode(f"n{at}", started, {POOL: units}) for at, units in enumerate(slots)]


def replicas(*on: int, started: float = 0.0, state: str = "RUNNING") -> list[ServeReplica]:
    """Replicas on the nodes with these indices."""
    return [ServeReplica(state, f"n{node}", started + at, f"r{at}") for at, node in enumerate(on)]


def stage(number: int, replicas: int) -> AppConfig:
    config = stage_config("one", number, replicas, POOL)
    (deployment,) = config["deployments"]
    return {**config, "deployments": [{**deployment, "graceful_shutdown_timeout_s": 30.0}]}


def state(*stages: Sequence[ServeReplica], status: str = "RUNNING", frontend: str = "RUNNING") -> ServeState:
    """A session with these stages and its frontend, all as desired except for the arguments."""
    apps = [application(frontend_config("one"), [ServeReplica(frontend, "n9", 0.0, "f")])]
    apps += [application(stage(at, len(has)), has, status) for at, has in enumerate(stages)]
    return ServeState(running=True, applications={app.name: app for app in apps})


def configs(seen: ServeState) -> Deployments:
    return Deployments(app.config for app in seen.applications.values() if app.config is not None)


def leaving(seen: ServeState, there: Sequence[RayNode], now: float = NOW) -> list[str]:
    decided = spread(configs(seen), seen, SESSION, there, now)
    return [told.replica for config in decided.values() if (told := configured_relocation(config))]


@pytest.mark.parametrize(
    ("seen", "there", "want"),
    [
        pytest.param(state(replicas(0, 0)), nodes(2, 2), ["r1"], id="all on one node"),
        pytest.param(state(replicas(0, 1)), nodes(2, 2), [], id="spread"),
        pytest.param(state(replicas(0, 0, 1)), nodes(3, 3), [], id="as even as possible"),
        pytest.param(state(replicas(0, 0, 1, 0)), nodes(4, 4), ["r3"], id="the newest of the fullest node"),
        pytest.param(state(replicas(0)), nodes(2, 2), [], id="one replica"),
        pytest.param(state(replicas(0, 0)), nodes(2), [], id="one node"),
        pytest.param(state(replicas(0, 0)), nodes(2, 0), [], id="the other node belongs to another pool"),
        pytest.param(state(replicas(0, 0), replicas(1, 1)), nodes(2, 2), [], id="the other node is full"),
        pytest.param(state(replicas(0, 1), replicas(0, 0)), nodes(4, 4), ["r1"], id="a later stage"),
        pytest.param(state(replicas(0, 0), replicas(1, 1)), nodes(4, 4), ["r1"], id="one stage at a time"),
        pytest.param(state(replicas(0, 0)), nodes(2, 2, started=NOW - 5), [], id="the nodes have just come"),
        pytest.param(state(replicas(0, 0, started=NOW - 5)), nodes(2, 2), [], id="they have just been started"),
        pytest.param(state(replicas(0, 0), status="DEPLOYING"), nodes(2, 2), [], id="something is being deployed"),
        pytest.param(state(replicas(0, 0), status="UNHEALTHY"), nodes(2, 2), [], id="an application is unhealthy"),
        pytest.param(state(replicas(0, 0), frontend="STARTING"), nodes(2, 2), [], id="the frontend starts"),
        pytest.param(
            state(replicas(0, 0), replicas(0, 1, state="STARTING")), nodes(4, 4), [], id="another stage is not up"
        ),
        pytest.param(state(replicas(0, 0, 7)), nodes(3, 3), [], id="a replica on a node that is being lost"),
    ],
)
def test_a_replica_moves_only_if_that_helps_and_everything_is_healthy(
    seen: ServeState, there: list[RayNode], want: list[str]
) -> None:
    assert leaving(seen, there) == want


@pytest.mark.parametrize(
    ("seen", "able", "want_going", "want_message"),
    [
        pytest.param(state(replicas(0, 0)), True, True, "", id="new enough"),
        pytest.param(state(replicas(0, 0)), False, False, "older version of Partita", id="older"),
        pytest.param(state(replicas(0, 1)), False, False, "", id="older, with nothing to do"),
    ],
)
def test_replicas_of_an_older_version_do_not_move(
    seen: ServeState, able: bool, want_going: bool, want_message: str
) -> None:
    found, message = spread_if_able(configs(seen), seen, SESSION, nodes(2, 2), NOW, able)
    assert any(configured_relocation(config) for config in found.values()) is want_going
    assert (want_message in message, bool(message)) == (True, bool(want_message))


def test_no_replica_moves_during_a_rollout() -> None:
    seen = state(replicas(0, 0))
    scaled = configs(seen).replaced(stage(0, 3))
    assert spread(scaled, seen, SESSION, nodes(2, 2), NOW) == scaled


def test_the_order_to_move_stays_in_the_configuration_and_the_grace_period_only_during_the_move() -> None:
    before = state(replicas(0, 0))
    frontend, told = spread(configs(before), before, SESSION, nodes(2, 2), NOW).values()
    assert told["deployments"][0]["graceful_shutdown_timeout_s"] == 30.0 + STAND_IN_SECONDS
    for left, want_timeout in ((replicas(0, 0), 30.0 + STAND_IN_SECONDS), (replicas(0, 1)[:1], 30.0)):
        app = application(told, left)
        seen = ServeState(running=True, applications={app.name: app})
        (kept,) = with_relocations(Deployments([stage(0, 2)]), seen).values()
        assert configured_relocation(kept) == configured_relocation(told)
        assert kept["deployments"][0]["graceful_shutdown_timeout_s"] == want_timeout
    unchanged = Deployments([frontend, stage(0, 2)])
    assert with_relocations(unchanged, before) == unchanged


def test_a_moving_replica_counts_until_its_replacement_is_ready() -> None:
    before = state(replicas(0, 0))
    _, told = spread(configs(before), before, SESSION, nodes(2, 2), NOW).values()
    stays, goes = replicas(0, 0)
    goes = ServeReplica("STOPPING", goes.node, goes.started, goes.id)
    new = [ServeReplica(word, "n1", NOW, "r9") for word in ("STARTING", "RUNNING")]
    assert [application(told, [stays, goes, *n]).ready for n in ([], new[:1], new[1:])] == [2, 2, 2]
    assert application(told, [stays]).ready == 1


@dataclass
class Cluster:
    """Serve with one stage: a moving replica is replaced at once, on the next node with room, in turn."""

    there: list[RayNode]
    on: list[int]
    stuck_on: int | None = None
    """The node on which Ray places everything, independent of free resources."""
    now: float = NOW
    moves: int = 0
    config: AppConfig = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = count()
        self._turn = cycle(range(len(self.there)))
        self.config = stage(0, len(self.on))
        self._replicas = [ServeReplica("RUNNING", f"n{node}", 0.0, f"r{next(self._names)}") for node in self.on]

    def counts(self) -> list[int]:
        found = Counter(replica.node for replica in self._replicas)
        return [found[node.id] for node in self.there]

    def run(self, seconds: float) -> None:
        """Passes of the operator, one every ten seconds."""
        until = self.now + seconds
        while self.now < until:
            seen = ServeState(
                running=True, applications={self.config["name"]: application(self.config, self._replicas)}
            )
            (self.config,) = spread(
                with_relocations(Deployments([stage(0, len(self.on))]), seen), seen, SESSION, self.there, self.now
            ).values()
            told = configured_relocation(self.config)
            gone = [replica for replica in self._replicas if told and replica.id == told.replica]
            if gone:
                self.moves += 1
                node = self._next_node()
                self._replicas.remove(gone[0])
                self._replicas.append(ServeReplica("RUNNING", node, self.now, f"r{next(self._names)}"))
            self.now += 10.0

    def _next_node(self) -> str:
        if self.stuck_on is not None:
            return f"n{self.stuck_on}"
        full = {node.id for node, used in zip(self.there, self.counts(), strict=True) if used >= node.total[POOL]}
        return next(name for turn in self._turn if (name := f"n{turn}") not in full)


@pytest.mark.parametrize(
    ("slots", "on", "want"),
    [
        pytest.param((2, 2), (0, 0), [1, 1], id="two full nodes"),
        pytest.param((8, 8), (0,) * 6, [3, 3], id="every node has room for all"),
        pytest.param((4, 4, 4), (0, 0, 0, 0, 1, 1, 1, 1), [3, 3, 2], id="one of three came back"),
        pytest.param((4, 1), (0, 0, 0, 0), [3, 1], id="little room on the other"),
    ],
)
def test_a_stage_is_spread_one_replica_at_a_time(slots: tuple[int, ...], on: tuple[int, ...], want: list[int]) -> None:
    cluster = Cluster(nodes(*slots), list(on))
    cluster.run(SETTLED_SECONDS * 200)
    assert sorted(cluster.counts(), reverse=True) == want
    moves = cluster.moves
    cluster.run(SETTLED_SECONDS * 200)
    assert cluster.moves == moves


def test_moves_without_effect_end_soon() -> None:
    cluster = Cluster(nodes(4, 4), [0, 0], stuck_on=0)
    cluster.run(24 * 3600)
    assert cluster.moves == MOST_WITHOUT_EFFECT
    cluster.there = [*cluster.there, RayNode("n2", cluster.now, {POOL: 4})]
    cluster.run(24 * 3600)
    assert cluster.moves == 2 * MOST_WITHOUT_EFFECT
