"""Objects as files."""

from pathlib import Path

import pytest
from tests.devtools.api_server.objects import FAST, NOW, POOL, Cluster

from partita_devtools.api_server.disk import ObjectFiles
from partita_devtools.api_server.store import ObjectStore
from partita_devtools.errors import DevError


@pytest.fixture
def files(tmp_path: Path) -> ObjectFiles:
    return ObjectFiles(tmp_path)


def test_an_object_is_a_file_that_one_can_read(files: ObjectFiles) -> None:
    document = Cluster().pool()
    files.save(FAST, document)
    path = files.directory / "gpupools" / "fast.yaml"
    assert "spec:\n  count: 2\n" in path.read_text()
    assert list(files.load()) == [(FAST, document)]
    files.delete(FAST)
    files.delete(FAST)
    assert list(files.load()) == []


def test_namespaced_objects_are_in_folders(files: ObjectFiles) -> None:
    cluster = Cluster()
    cluster.config_map("a")
    for place, document in cluster.disk.files.items():
        files.save(place, document)
    assert (files.directory / "configmaps" / "default" / "a.yaml").exists()
    assert dict(files.load()) == cluster.disk.files


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("apiVersion: partita.dev/v1alpha1\nkind: GPUPool\nmetad", id="cut off"),
        pytest.param("kind: GPUPool\nmetadata: {name: other, uid: '1'}", id="of another name"),
        pytest.param("[1, 2", id="no YAML"),
    ],
)
def test_a_file_without_a_complete_object_is_named_with_what_to_do(files: ObjectFiles, text: str) -> None:
    path = files.path(FAST)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DevError, match=r"gpupools/fast\.yaml does not hold a complete object .* Move the file away"):
        list(files.load())


def test_a_draft_that_a_crash_left_is_not_read(files: ObjectFiles) -> None:
    files.save(FAST, Cluster().pool())
    (files.directory / "gpupools" / ".fast.yaml.draft").write_text("half")
    assert [place for place, _ in files.load()] == [FAST]


def test_a_full_disk_leaves_the_old_object(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore((), files, NOW)
    before = store.create(POOL, "", {"metadata": {"name": "fast"}, "spec": {"count": 2}}, NOW)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match="No space left"):
        store.patch(POOL, FAST, {"spec": {"count": 3}}, NOW, status=False)
    assert list(files.load()) == [(FAST, before)]
    assert [path.name for path in (files.directory / "gpupools").iterdir()] == ["fast.yaml"]
