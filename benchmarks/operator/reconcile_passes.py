"""CPU time of one pass of the reconciler over a session, by the number of sessions: it should not grow with it.

The reconcilers alone, on the tests' cluster in memory: two models a session, on three of the pools, three priorities,
one pool for ten sessions. Converging is as many rounds over everything as it takes until all are Ready; passes at rest
are those of one more round. What the cluster in memory does itself is in the figures. The last line is a summary in
JSON.

    python benchmarks/operator/reconcile_passes.py [--sessions 50 200 500] [--quick]
"""

import argparse
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.builders import pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.conditions import ConditionType, is_true

MOST_ROUNDS = 60
POOLS_A_SESSION = 3


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--quick", action="store_true", help="50 and 200 sessions")
    options = parser.parse_args()
    found = [measure(sessions) for sessions in ([50, 200] if options.quick else options.sessions)]
    for row in found:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    print(json.dumps({"passes": found}))


def measure(sessions: int) -> dict[str, float]:
    """CPU time of converging and of passes at rest with so many sessions."""
    cluster = cluster_of(sessions)
    began = time.process_time()
    rounds = 0
    while rounds < MOST_ROUNDS and ready(cluster) < sessions:
        cluster.look_once()
        cluster.now += timedelta(seconds=1)
        rounds += 1
    converged = time.process_time()
    cluster.look_at_sessions()
    looked = time.process_time()
    return {
        "sessions": sessions,
        "ready": ready(cluster),
        "rounds": rounds,
        "ms_a_pass_converging": round(1000 * (converged - began) / sessions / rounds, 2),
        "ms_a_pass_at_rest": round(1000 * (looked - converged) / sessions, 2),
    }


def ready(cluster: SimulatedCluster) -> int:
    """How many sessions are Ready."""
    return sum(is_true(session.status.conditions, ConditionType.READY) for session in cluster.sessions.values())


def cluster_of(sessions: int) -> SimulatedCluster:
    """The cluster, before the first pass."""
    cluster = SimulatedCluster()
    pools = max(5, sessions // 10)
    cluster.add(*[pool(f"pool-{i}").gpus(400).build() for i in range(pools)])
    for i in range(sessions):
        names = tuple(sorted({f"pool-{(i + 7 * n) % pools}" for n in range(POOLS_A_SESSION)}))
        made = session(f"session-{i}").chain("detector", "classifier").rate(50 + i % 100)
        cluster.add(made.with_spec(pools=names, priority=i % 3).build())
    return cluster


if __name__ == "__main__":
    main()
