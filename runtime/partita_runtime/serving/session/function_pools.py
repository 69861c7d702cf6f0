"""All functions of a session: each runs in processes of its image."""

from collections.abc import Sequence

from partita_api.session.module import FunctionSource
from partita_runtime.serving.session.function_processes import FunctionError
from partita_runtime.serving.session.functions import Caller, FunctionPool


class FunctionPools:
    """A pool of processes for each image of functions, and one for the functions without an image."""

    def __init__(self, functions: Sequence[FunctionSource], processes: int, caller: Caller) -> None:
        """There are as many `processes` for each image."""
        images = dict.fromkeys(function.image for function in functions)
        self._pools = {
            image: FunctionPool([f for f in functions if f.image == image], processes, caller, image)
            for image in images
        }

    async def prepare(self) -> None:
        """Start all processes and load the functions. Raises FunctionError for one that cannot be loaded."""
        try:
            for pool in self._pools.values():
                await pool.prepare()
        except FunctionError:
            self.close()
            raise

    def call(self, sub_id: int, function: FunctionSource) -> None:
        """Call the function once a process is free; the caller receives the result."""
        self._pools[function.image].call(sub_id, function)

    def cancel(self, sub_id: int) -> None:
        """The result is not needed any more: a call of an asynchronous function is cancelled."""
        for pool in self._pools.values():
            pool.cancel(sub_id)

    def tick(self) -> None:
        """To be called a few times a second: skips queued calls that are not needed any more."""
        for pool in self._pools.values():
            pool.tick()

    def close(self) -> None:
        """End the processes at once."""
        for pool in self._pools.values():
            pool.close()
