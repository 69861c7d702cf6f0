"""What is recorded about a control plane in its state directory, in `control-plane.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.commands import Ports
from partita_devtools.machine.files import read_record, write_record
from partita_devtools.machine.processes import ProcessIdentity

_FILE = "control-plane.json"


@dataclass(frozen=True)
class ControlPlaneState:
    """A control plane as it was last started."""

    ports: Ports
    binaries: Binaries
    token: str
    """The administrator's."""
    dies_with_parent: bool
    processes: dict[str, ProcessIdentity]
    """By program."""

    def write(self, state_dir: Path) -> None:
        """Record it in a state directory."""
        write_record(state_dir / _FILE, self)

    @classmethod
    def read(cls, state_dir: Path) -> ControlPlaneState | None:
        """The record in a state directory; None if no control plane was ever started there. Raises DevError."""
        return read_record(state_dir / _FILE, cls)
