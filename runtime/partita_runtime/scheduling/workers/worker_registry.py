"""All known workers, their nodes, and the stages and plans for which they joined."""

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.workers.pools import Worker, WorkerNode


class WorkerRegistry:
    """All known workers, those of the current plan and of other plans."""

    def __init__(self) -> None:
        self._nodes: dict[str, WorkerNode] = {}
        self._workers: dict[str, Worker] = {}
        self._members: dict[tuple[str, StageRef], dict[str, None]] = {}
        """By (plan, stage), in order of joining."""

    @property
    def workers(self) -> dict[str, Worker]:
        """The workers by name."""
        return self._workers

    def join(self, plan: str, stage: StageRef, name: str, node: str, now: int) -> Worker:
        """Register a worker for a stage of a plan, not draining; returns the worker.

        Raises ValueError if the worker is known on another node.
        """
        worker = self._workers.get(name)
        if worker is None:
            worker = Worker(name, self._nodes.setdefault(node, WorkerNode(node)), now)
            worker.node.workers.append(worker)
            self._workers[name] = worker
        elif worker.node.name != node:
            raise ValueError(
                f"worker {name!r} is on node {worker.node.name!r}, not {node!r}; report it lost before it joins again"
            )
        worker.draining = False
        self._members.setdefault((plan, stage), {})[name] = None
        return worker

    def drain(self, name: str) -> Worker | None:
        """Take a worker out of all pools; it stays registered. Returns None if it is unknown."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.draining = True
            for pool in list(worker.pools):
                pool.leave(worker)
        return worker

    def leave(self, plan: str, stage: StageRef, name: str) -> Worker | None:
        """Remove a worker from a stage of a plan; returns None if it did not belong to it."""
        members = self._members.get((plan, stage), {})
        if name not in members:
            return None
        del members[name]
        return self._workers[name]

    def lose(self, name: str) -> Worker | None:
        """Remove a worker from everything; returns None if it is unknown."""
        worker = self.drain(name)
        if worker is not None:
            del self._workers[name]
            worker.node.workers.remove(worker)
            for key in [key for key, names in self._members.items() if name in names]:
                del self._members[key][name]
                if not self._members[key]:
                    del self._members[key]
            if not worker.node.workers:
                del self._nodes[worker.node.name]
        return worker

    def members(self, plan: str, stage: StageRef) -> list[Worker]:
        """The workers that joined for a stage of a plan and do not drain."""
        joined = (self._workers[name] for name in self._members.get((plan, stage), ()))
        return [worker for worker in joined if not worker.draining]
