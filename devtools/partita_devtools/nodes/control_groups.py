"""The control groups of a node's pods, and their CPU limit."""

from __future__ import annotations

from pathlib import Path

from partita_devtools.machine.processes import ProcessIdentity, identify
from partita_devtools.nodes.node import DevNode

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


def create(node: DevNode) -> None:
    """Create the node's group in every hierarchy, with the CPU limit of its specification."""
    for hierarchy in _hierarchies():
        group = hierarchy
        for part in Path(node.cgroup).parts[1:]:
            if (control := group / "cgroup.subtree_control").exists() and not _is_version_1():
                available = (group / "cgroup.controllers").read_text(encoding="utf-8").split()
                control.write_text(" ".join(f"+{name}" for name in available), encoding="utf-8")
            group /= part
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists() and not (group / name).read_text(encoding="utf-8").strip():
                    (group / name).write_text((group.parent / name).read_text(encoding="utf-8"), encoding="utf-8")
    if node.spec.cpus is not None:
        _limit(node, node.spec.cpus)


def processes(node: DevNode) -> set[ProcessIdentity]:
    """The processes of the node's pods."""
    found: set[ProcessIdentity] = set()
    for hierarchy in _hierarchies():
        for listed in (hierarchy / node.cgroup.lstrip("/")).glob("**/cgroup.procs"):
            pids = listed.read_text(encoding="utf-8").split()
            found |= {process for pid in pids if (process := identify(int(pid))) is not None}
    return found


def remove(node: DevNode) -> None:
    """Remove the node's groups, which must have no processes."""
    for hierarchy in _hierarchies():
        top = hierarchy / node.cgroup.lstrip("/")
        for group in sorted(top.glob("**/"), key=lambda path: len(path.parts), reverse=True) if top.exists() else ():
            group.rmdir()
        if top.parent.exists() and not any(child.is_dir() for child in top.parent.iterdir()):
            top.parent.rmdir()


def _limit(node: DevNode, cpus: float) -> None:
    group = node.cgroup.lstrip("/")
    quota_us = round(cpus * _PERIOD_US)
    if _is_version_1():
        (_ROOT / "cpu" / group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="utf-8")
    else:
        (_ROOT / group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}", encoding="utf-8")


def _is_version_1() -> bool:
    return (_ROOT / "cpu").is_dir()


def _hierarchies() -> list[Path]:
    """The roots of all hierarchies, without symbolic links such as `cpu` to `cpu,cpuacct`."""
    if not _is_version_1():
        return [_ROOT]
    return [path for path in sorted(_ROOT.iterdir()) if path.is_dir() and not path.is_symlink()]
