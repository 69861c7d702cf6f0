"""The scheduling core: one object that takes events in and gives decisions out."""

from partita_runtime.scheduling.events import Action, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals


class SchedulingCore:
    """Decides who is batched with whom, on which path of workers, and when.

    The driver tells what happens (`arrive`, `completed`, `worker_joined`, ...), then calls `advance` and carries out
    what it answers; it calls `advance` again at `next_wakeup`. All times are integer microseconds on one clock.
    """

    def __init__(self, plan: SchedulingPlan) -> None:
        raise NotImplementedError

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Time from a dispatch until the first worker can start: ctrl + per_request * batch size.

        Give a high percentile of what is measured (Symphony, Figure 18: d_ctrl + d_data * b). A stage that is not
        reported `ctrl` after its reserved end is taken to run on.
        """
        raise NotImplementedError

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int, plan: str | None = None) -> None:
        """A worker is ready to run batches of a stage of the plan named `plan` (default: the plan in force).

        Idempotent. A worker of another plan waits until `switch_plan` puts that plan in force. One worker may join
        several stages (a vGPU with several models loaded): it still runs one batch at a time. A worker that was lost
        or draining and joins again is as good as new. Raises ValueError if the plan in force has no such stage, or if
        the worker is known on another node.
        """
        raise NotImplementedError

    def worker_draining(self, worker: str, now: int) -> None:
        """The worker gets no new batches; those it has it finishes. Unknown workers are ignored."""
        raise NotImplementedError

    def worker_lost(self, worker: str, now: int) -> None:
        """The worker is gone, with the batches that still need it.

        Their requests are queued again if their deadlines allow, else dropped (WORKER_LOST) by the next `advance`.
        Unknown workers are ignored.
        """
        raise NotImplementedError

    def arrive(self, request_id: int, module: str, deadline: int, now: int) -> None:
        """A (sub-)request for `module`; `deadline` is for this module's answer.

        Raises KeyError if the plan does not serve the module, ValueError if the request is already in the core.
        """
        raise NotImplementedError

    def cancel(self, request_id: int, now: int) -> None:
        """Nobody waits for the request any more: it is taken from the queue, or its answer no longer counts.

        Unknown requests are ignored.
        """
        raise NotImplementedError

    def completed(self, batch_id: int, stage: int, now: int) -> None:
        """Feedback: the batch really left this stage at `now`, which replaces what was reserved.

        The last stage ends the batch. Reports that are unknown or come twice are ignored and counted.
        """
        raise NotImplementedError

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        """The batch could not be executed; its workers live.

        Its requests are queued again, once, if their deadlines allow; else they are dropped (EXECUTION_FAILED, with
        `reason` as detail) by the next `advance`.
        """
        raise NotImplementedError

    def switch_plan(self, plan: SchedulingPlan, now: int) -> None:
        """Put another plan in force, between two batches.

        Queued requests move to it (modules that it lacks: dropped, NO_WORKERS); batches in flight finish where they
        are. Its workers are those that joined for its name, and those of the old plan whose stage is the same in
        both: same StageRef, pool, blocks and vGPU divisor. The others get no more batches, but are remembered under
        their plan's name, so that a rollback finds them.
        """
        raise NotImplementedError

    def advance(self, now: int) -> list[Action]:
        """Everything that is due, in the order in which it was decided."""
        raise NotImplementedError

    def next_wakeup(self) -> int | None:
        """When `advance` should be called if nothing happens before; None if nothing is waited for."""
        raise NotImplementedError

    def signals(self, now: int) -> CoreSignals:
        """Counters since the core was made, as of `now`."""
        raise NotImplementedError
