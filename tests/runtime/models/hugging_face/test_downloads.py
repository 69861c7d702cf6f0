"""Repositories of Hugging Face's hub: downloaded once, checked, and then read without a network."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.models.hugging_face.hub import COMMIT, OLD_COMMIT, Hub, Repository, serving_hub

from partita_runtime.models.errors import ModelError
from partita_runtime.models.hugging_face.checkpoint import Checkpoint
from partita_runtime.models.hugging_face.repository import find_checkpoint
from partita_runtime.models.policy import ModelPolicy

NAME = "acme/encoder"
CONFIG = b'{"model_type": "bert"}'
WEIGHTS = bytes(range(256)) * 1000
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
WHOLE = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "README.md": b"An encoder.", "pytorch_model.bin": b"\x80"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving_hub() as hub:
        hub.repositories[NAME] = Repository(WHOLE)
        yield hub


class Finding:
    """Finds the repository with a cache of its own; keeps the lines of progress."""

    def __init__(self, hub: Hub, cache: Path) -> None:
        self._hub, self.cache = hub, cache
        self.lines: list[str] = []

    def __call__(self, revision: str | None = None, **policy: Any) -> Checkpoint:
        rules = ModelPolicy(**{"hub_endpoint": self._hub.url, "hub_directory": str(self.cache), **policy})
        return find_checkpoint(NAME, revision, rules, self.lines.append)

    def refusal(self, revision: str | None = None, **policy: Any) -> str:
        with pytest.raises(ModelError) as refused:
            self(revision, **policy)
        return str(refused.value)


@pytest.fixture
def find(hub: Hub, tmp_path: Path) -> Finding:
    return Finding(hub, tmp_path / "cache")


def contents(found: Checkpoint) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in found.files.items()}


def test_only_the_files_that_are_read_are_downloaded(find: Finding, hub: Hub) -> None:
    found = find()

    assert found.commit == COMMIT
    assert contents(found) == {"config.json": CONFIG, "model.safetensors": WEIGHTS}
    assert sorted(hub.downloaded) == ["config.json", "model.safetensors"]


def test_the_log_says_what_is_downloaded(find: Finding) -> None:
    find("main")

    assert find.lines[0] == f"{NAME} at main is commit {COMMIT}"
    assert f"downloading {NAME}: model.safetensors: 0.3 of 0.3 MB" in find.lines


def test_divided_weights_are_downloaded_with_their_index(find: Finding, hub: Hub) -> None:
    parts = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "model-3.safetensors": b"3"}
    hub.repositories[NAME] = Repository({"config.json": CONFIG, "model.safetensors.index.json": INDEX, **parts})

    assert sorted(find().files) == [
        "config.json",
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
    ]


@pytest.mark.parametrize(
    ("revision", "policy"),
    [
        pytest.param(COMMIT, {}, id="by commit"),
        pytest.param(None, {"repositories": (f"{NAME}@{COMMIT}",)}, id="by the commit of the platform"),
        pytest.param(None, {"hub_offline": True}, id="offline"),
        pytest.param("main", {"hub_offline": True}, id="offline by branch"),
    ],
)
def test_the_second_use_needs_no_network(find: Finding, hub: Hub, revision: str | None, policy: dict[str, Any]) -> None:
    first = find("main")
    hub.requests.clear()

    again = find(revision, **policy)

    assert again == first
    assert not hub.requests


def test_a_branch_that_moved_is_downloaded_again(find: Finding, hub: Hub) -> None:
    find()
    moved = "c" * 40
    hub.repositories[NAME] = Repository({**WHOLE, "config.json": b"{}"}, {"main": moved})
    hub.requests.clear()

    found = find()

    assert found.commit == moved
    assert contents(found)["config.json"] == b"{}"
    assert hub.downloaded == ["config.json"]


def test_a_tag_is_the_commit_that_it_names(find: Finding) -> None:
    assert find("v1").commit == OLD_COMMIT


def test_a_token_of_the_environment_opens_a_gated_repository(
    find: Finding, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[NAME].token = "hf_secret"

    assert "HF_TOKEN from a Secret" in find.refusal()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert contents(find())["model.safetensors"] == WEIGHTS


@pytest.mark.parametrize(
    ("revision", "policy", "want_words"),
    [
        pytest.param("v2", {}, "has no revision v2", id="unknown revision"),
        pytest.param("d" * 40, {}, "has no revision dddd", id="unknown commit"),
        pytest.param(None, {"hub_offline": True}, "nothing is downloaded", id="offline and not there"),
        pytest.param(None, {"hub_endpoint": "http://127.0.0.1:9"}, "check that the pods can reach it", id="no hub"),
    ],
)
def test_a_refusal_says_what_to_do(
    find: Finding, revision: str | None, policy: dict[str, Any], want_words: str
) -> None:
    assert want_words in find.refusal(revision, **policy)


def test_a_repository_that_does_not_exist_is_refused(find: Finding, hub: Hub) -> None:
    del hub.repositories[NAME]

    assert "does not exist" in find.refusal()


def test_a_download_that_broke_off_goes_on(find: Finding, hub: Hub) -> None:
    hub.repositories[NAME].broken_off["model.safetensors"] = 1

    assert contents(find())["model.safetensors"] == WEIGHTS


def test_a_damaged_file_of_the_cache_is_downloaded_again(find: Finding) -> None:
    damaged = find().files["model.safetensors"]
    damaged.write_bytes(WEIGHTS[:100])

    assert "is damaged" in find.refusal(COMMIT, hub_offline=True)
    assert contents(find(COMMIT))["model.safetensors"] == WEIGHTS


def test_a_file_larger_than_the_disk_is_not_requested(find: Finding, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=len(WEIGHTS) - 1))

    assert "mount a larger volume" in find.refusal()
    assert "model.safetensors" not in hub.downloaded


class TestPlainDirectory:
    def test_a_plain_directory_is_read_without_a_network(self, find: Finding, hub: Hub) -> None:
        directory = find.cache / NAME
        directory.mkdir(parents=True)
        for name, content in WHOLE.items():
            (directory / name).write_bytes(content)

        found = find()

        assert found.commit is None
        assert {path.parent for path in found.files.values()} == {directory}
        assert not hub.requests
        assert "has no revisions" in find.refusal(COMMIT)

    def test_its_content_is_known_by_a_digest(self, find: Finding) -> None:
        directory = find.cache / NAME
        directory.mkdir(parents=True)
        (directory / "config.json").write_bytes(CONFIG)
        (directory / "model.safetensors").write_bytes(WEIGHTS)
        before = find().content

        (directory / "README.md").write_text("An encoder.")
        assert find().content == before
        (directory / "model.safetensors").write_bytes(WEIGHTS[:-1])
        assert find().content != before
