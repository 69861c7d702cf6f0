"""A Git repository with the example of `examples/gitops`, and a clone of it that an agent reads."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

GITOPS = Path(__file__).resolve().parents[3] / "examples" / "gitops"
FOLDERS = ("platform", "teams")

Json = dict[str, Any]


@dataclass(frozen=True)
class Repository:
    """What a team edits and pushes, and the clone that follows it as git-sync would make it."""

    edited: Path
    clone: Path

    @classmethod
    def create(cls, directory: Path) -> "Repository":
        """The example without the maintenance windows of its session, so that changes take effect at once."""
        made = cls(directory / "edited", directory / "clone")
        for folder in FOLDERS:
            shutil.copytree(GITOPS / folder, made.edited / folder)
        for path in made.edited.rglob("*.yaml"):
            _rewrite(path, _at_any_time)
        _git(made.edited, "init", "--initial-branch=main")
        made._commit("The platform and its first team")
        _git(directory, "clone", str(made.edited), str(made.clone))
        return made

    def change(self, path: str, edit: Callable[[Json], None]) -> None:
        """Edit each object of a file, and commit."""
        _rewrite(self.edited / path, edit)
        self._commit(f"Change {path}")

    def add(self, path: str, document: Json) -> None:
        """Add a file with one object, and commit."""
        (self.edited / path).write_text(yaml.safe_dump(document))
        self._commit(f"Add {path}")

    def revert(self) -> None:
        """Undo the last commit by another one."""
        _git(self.edited, "revert", "--no-edit", "HEAD")
        self._follow()

    def _commit(self, message: str) -> None:
        _git(self.edited, "add", "--all")
        _git(self.edited, "commit", "--message", message)
        self._follow()

    def _follow(self) -> None:
        if self.clone.exists():
            _git(self.clone, "fetch")
            _git(self.clone, "reset", "--hard", "origin/main")


def _at_any_time(document: Json) -> None:
    document.get("spec", {}).pop("maintenanceWindows", None)


def _rewrite(path: Path, edit: Callable[[Json], None]) -> None:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    for document in documents:
        edit(document)
    path.write_text(yaml.safe_dump_all(documents))


def _git(directory: Path, *arguments: str) -> None:
    who = ["-c", "user.name=team-a", "-c", "user.email=team-a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)
