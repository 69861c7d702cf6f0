"""A stage replica in a separate process, without Ray. Tests can stop it, disconnect it, and change its clock."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from partita_runtime.execution.build import build_executor
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.transport.wire import PeerAddress

ROOT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class ReplicaProcess:
    """A replica that listens."""

    address: PeerAddress
    process: asyncio.subprocess.Process

    def stop(self) -> None:
        """Stop the process; its connections stay."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self.process.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def replica_process(
    arguments: StageArguments, host: str = "127.0.0.1", clock_seconds: float = 0.0, within: Sequence[str] = ()
) -> AsyncIterator[ReplicaProcess]:
    """Start a replica that listens on `host`, with clocks that are ahead, by a command with a prefix."""
    process = await asyncio.create_subprocess_exec(
        *(*within, sys.executable, "-m", __name__, host, str(clock_seconds), arguments.model_dump_json(by_alias=True)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        yield ReplicaProcess(PeerAddress.model_validate_json(line), process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def put_clocks_ahead(seconds: float) -> None:
    """All clocks of this process."""

    def ahead(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + seconds

    def ahead_ns(clock: Callable[[], int]) -> Callable[[], int]:
        return lambda: clock() + round(seconds * 1e9)

    time.time, time.time_ns = ahead(time.time), ahead_ns(time.time_ns)
    time.monotonic, time.monotonic_ns = ahead(time.monotonic), ahead_ns(time.monotonic_ns)
    time.perf_counter, time.perf_counter_ns = ahead(time.perf_counter), ahead_ns(time.perf_counter_ns)


async def serve(host: str, arguments: StageArguments) -> None:
    """Print the replica's address, then run batches until the process is killed."""
    worker = StageWorker(build_executor(arguments.build), arguments.build.max_batch)
    print((await worker.start(host)).model_dump_json(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    put_clocks_ahead(float(sys.argv[2]))
    asyncio.run(serve(sys.argv[1], StageArguments.model_validate_json(sys.argv[3])))
