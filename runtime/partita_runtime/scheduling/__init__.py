"""The scheduling core: which requests form a batch, on which path of vGPUs the batch runs, and when.

May import `partita_api` only, and does no I/O: the driver passes the time (integer microseconds) and carries out the
decisions. The live frontend and the simulator use the same core.

    >>> from partita_runtime.scheduling import SchedulingCore, StageRef, one_model_plan
    >>> core = SchedulingCore(one_model_plan("detector", latency_ms=[6, 7, 8], gpus=1))
    >>> core.worker_joined(StageRef("detector", "a", 0), worker="gpu-0", node="node-0", now=0)
    >>> core.arrive(request_id=1, module="detector", deadline=25_000, now=0)
    >>> core.advance(now=0)  # the batch waits: a second request may arrive in time
    []
    >>> core.next_wakeup()
    18000
    >>> core.advance(now=18_000)[0].request_ids
    (1,)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from partita_runtime.scheduling.core import SchedulingCore as SchedulingCore
    from partita_runtime.scheduling.events import Action as Action
    from partita_runtime.scheduling.events import Dispatch as Dispatch
    from partita_runtime.scheduling.events import Drop as Drop
    from partita_runtime.scheduling.events import DropReason as DropReason
    from partita_runtime.scheduling.events import StageRef as StageRef
    from partita_runtime.scheduling.plan import ScheduledModule as ScheduledModule
    from partita_runtime.scheduling.plan import ScheduledPipeline as ScheduledPipeline
    from partita_runtime.scheduling.plan import ScheduledStage as ScheduledStage
    from partita_runtime.scheduling.plan import SchedulingPlan as SchedulingPlan
    from partita_runtime.scheduling.plan import one_model_plan as one_model_plan
    from partita_runtime.scheduling.plan import scheduling_plan as scheduling_plan
    from partita_runtime.scheduling.signals import CoreSignals as CoreSignals

_MODULES: Final = {
    "Action": "events",
    "CoreSignals": "signals",
    "Dispatch": "events",
    "Drop": "events",
    "DropReason": "events",
    "ScheduledModule": "plan",
    "ScheduledPipeline": "plan",
    "ScheduledStage": "plan",
    "SchedulingCore": "core",
    "SchedulingPlan": "plan",
    "StageRef": "events",
    "one_model_plan": "plan",
    "scheduling_plan": "plan",
}
"""The module of each public name; it is imported with the first use of the name."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
