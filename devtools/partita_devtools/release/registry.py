"""A registry on this machine, by Debian's docker-registry."""

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.ports import free_ports

_START_S = 30.0


@contextmanager
def local_registry(work: Path) -> Iterator[str]:
    """Host and port of an empty registry without TLS, which keeps its data and its log in the folder `work`.

    Raises DevError if it does not start.
    """
    (port,) = free_ports(1)
    settings, log = work / "registry.yml", work / "registry.log"
    settings.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {work / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with (
        log.open("w") as output,
        subprocess.Popen(["docker-registry", "serve", str(settings)], stdout=output, stderr=output) as process,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/v2/", process, log)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5.0):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise DevError(f"the registry does not start: {error}; its log is {log}") from error
        time.sleep(0.1)
