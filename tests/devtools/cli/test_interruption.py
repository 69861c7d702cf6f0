"""Ctrl-C stops an environment that the command has started, and no other."""

from pathlib import Path

import pytest

from partita_devtools.cli import interruption
from partita_devtools.cli.interruption import stopped_if_interrupted


class Stopped:
    """Records which state directories were stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ran_before: bool) -> None:
        self.directories: list[Path] = []
        monkeypatch.setattr(interruption, "_runs", lambda _state_dir: ran_before)
        monkeypatch.setattr(interruption, "stop_operator", self.directories.append)
        monkeypatch.setattr(interruption, "dev_down", lambda state_dir, _report: self.directories.append(state_dir))


@pytest.mark.parametrize("ran_before", [False, True])
def test_ctrl_c(ran_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Stopped(monkeypatch, ran_before=ran_before)
    with pytest.raises(KeyboardInterrupt), stopped_if_interrupted(tmp_path):
        raise KeyboardInterrupt
    assert stopped.directories == ([] if ran_before else [tmp_path, tmp_path])


def test_an_environment_that_was_started_keeps_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Stopped(monkeypatch, ran_before=False)
    with stopped_if_interrupted(tmp_path):
        pass
    with pytest.raises(ValueError, match="other"), stopped_if_interrupted(tmp_path):
        raise ValueError("other errors are handled by who raises them")
    assert stopped.directories == []


def test_an_empty_state_directory_has_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), stopped_if_interrupted(tmp_path / "never used"):
        raise KeyboardInterrupt
