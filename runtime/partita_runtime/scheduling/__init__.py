"""The scheduling core: which requests form a batch, on which path of vGPUs the batch runs, and when.

It does no I/O: the driver passes the time (integer microseconds) and carries out the decisions. The live frontend and
the simulator use the same core. May import no other folder.

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

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
