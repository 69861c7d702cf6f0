"""What Ctrl-C does to a command that starts a development environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partita_devtools.environment import dev_down, load_dev_environment
from partita_devtools.operator_process import operator_running, stop_operator


@contextmanager
def stopped_if_interrupted(state_dir: Path) -> Iterator[None]:
    """Stop the environment in `state_dir` if Ctrl-C ends the block. One that ran before the block keeps running."""
    state_dir = state_dir.absolute()
    ran_before = _runs(state_dir)
    try:
        yield
    except KeyboardInterrupt:
        if not ran_before:
            stop_operator(state_dir)
            dev_down(state_dir, lambda _line: None)
        raise


def _runs(state_dir: Path) -> bool:
    environment = load_dev_environment(state_dir)
    if environment is None:
        return False
    servers = (environment.control_plane, environment.api_server)
    return (
        environment.ray.is_running()
        or operator_running(state_dir)
        or any(server is not None and server.is_running() for server in servers)
    )
