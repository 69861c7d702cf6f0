"""Kills processes of a Ray cluster at random; Ray restarts them."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from benchmarks.serving.serving_cases.served import replicas

from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster

CONTROLLER = "SERVE_CONTROLLER_ACTOR"
DIRECTORY = "partita-directory"

SPARING = ("replica", "node", "controller", "directory")
"""A stage replica, a whole node, Serve's controller, the directory: requests survive their loss."""
KINDS = (*SPARING, "frontend")
"""Everything that can be killed. Without a frontend, requests are lost until there is another one."""


class Killer:
    """Kills one after the other, but never the frontend's node."""

    def __init__(
        self,
        cluster: RayCluster,
        nodes: Sequence[str],
        kinds: Sequence[str],
        seed: int,
        serves: Callable[[], bool],
    ) -> None:
        """`nodes` may be killed. All `kinds` are equally likely.

        `serves` returns whether a frontend answers.
        """
        self._cluster = cluster
        self._nodes = nodes
        self._kinds = kinds
        self._random = np.random.default_rng(seed)
        self.killed: Counter[str] = Counter()
        self._serves = serves
        self.outages: list[tuple[float, float]] = []
        """Since when, and until when, there was no frontend; seconds of the monotonic clock."""

    def kill_until(self, over: Callable[[], bool], mean_gap_s: float, say: Callable[[str], None]) -> None:
        """Kill with exponential gaps until `over()`; every node runs again then."""
        while not over():
            pause = time.monotonic() + self._random.exponential(mean_gap_s)
            kind = str(self._random.choice(self._kinds))
            while time.monotonic() < pause and not over():
                time.sleep(0.1)
            if over():
                return
            began = time.monotonic()
            victim = self._kill(kind)
            if victim:
                self.killed[kind] += 1
                say(f"killed {kind} {victim}")
            if victim and kind == "frontend":
                while not self._serves() and not over():
                    time.sleep(0.1)
                self.outages.append((began, time.monotonic()))
                say(f"a frontend answers again after {time.monotonic() - began:.1f} s")
            if kind == "node":
                time.sleep(self._random.uniform(0, mean_gap_s))
                self._cluster.start_node(victim)
                say(f"node {victim} is back")

    def _kill(self, kind: str) -> str:
        """Kill one; its name, or "" if there is none now."""
        if kind == "node":
            node = str(self._random.choice(self._nodes))
            self._cluster.kill_node(node)
            return node
        try:
            running = self._replicas(kind) if kind in ("replica", "frontend") else self._actors(kind)
        except DevError:  # Serve's controller is being restarted
            return ""
        if not running:
            return ""
        name, pid = running[int(self._random.integers(len(running)))]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has just died with its node
            return ""
        return name

    def _replicas(self, kind: str) -> list[tuple[str, int]]:
        return [
            (replica["replica_id"], replica["pid"])
            for replica in replicas(self._cluster)
            if replica["application"].endswith(".frontend") == (kind == "frontend")
            and replica.get("pid")
            and replica["state"] == "RUNNING"
        ]

    def _actors(self, kind: str) -> list[tuple[str, int]]:
        name = CONTROLLER if kind == "controller" else DIRECTORY
        found = self._cluster.get(
            f"/api/v0/actors?detail=1&filter_keys=name&filter_predicates=%3D&filter_values={name}"
        )
        return [
            (name, actor["pid"])
            for actor in found["data"]["result"]["result"]
            if actor["state"] == "ALIVE" and actor["pid"]
        ]
