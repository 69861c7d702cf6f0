"""What is done about a node that ends while it starts; a log stands for Ray."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.devtools.conftest import process_of

from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster

Start = Callable[[str], list[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a node that ends with words in its log, and would join in a second attempt. Gives the lines of progress."""
    log, launched, lines = tmp_path / "logs" / "ray-head.log", list[str](), list[str]()
    log.parent.mkdir()
    monkeypatch.setattr(RayCluster, "_has_joined", lambda *_: len(launched) == 2)
    monkeypatch.setattr(RayCluster, "_launch", lambda _, name: launched.append(name))

    def start(words: str) -> list[str]:
        log.write_text(words)
        with process_of(tmp_path, "ray") as process:
            process.kill()
        RayCluster(tmp_path).start_node("head", lines.append)
        return lines

    return start


@pytest.mark.parametrize("words", ["node timed out during startup", "Timed out waiting for node info for node_id=1"])
def test_a_node_that_ran_into_a_time_limit_of_ray_is_started_again(words: str, start: Start) -> None:
    assert start(f"{words}\nRemaining processes will be killed.\n") == [
        "Ray node head did not join in Ray's time; starting it again"
    ]


def test_a_node_with_another_problem_is_not(start: Start) -> None:
    with pytest.raises(DevError, match=r"(?s)Ray node head ended; the end of its log .*ray-head.log:\n  no such file"):
        start("no such file")
