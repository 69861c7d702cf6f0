"""What sessions may name: allow-lists of modules and places, digests, and files that contain only tensors."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.models.intruder import Intruder

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_here, policy_text, with_policy
from partita_runtime.models.source import load_model
from partita_runtime.serving.session.function_processes import FunctionError, FunctionProcess

HERE = "tests.runtime.models"
FORBIDDEN = f"{HERE}.never_imported"
DIGEST = "0" * 64
COMMIT = "c" * 40


def policy(**fields: Any) -> ModelPolicy:
    return ModelPolicy(**fields)


@pytest.fixture
def no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is imported yet, and the test's settings are restored."""
    monkeypatch.delenv("PARTITA_TEST_IMPORTED", raising=False)
    monkeypatch.setenv(VARIABLE, policy_text(policy(modules=(f"{HERE}.sample_models",), files=("/models/",))))
    monkeypatch.delitem(sys.modules, FORBIDDEN, raising=False)


@pytest.mark.parametrize(
    ("allowed", "entrypoint", "want"),
    [
        pytest.param(None, "os:system", True, id="nothing is set"),
        pytest.param(("traffic",), "traffic.models:detector", True, id="in an allowed package"),
        pytest.param(("traffic.models",), "traffic.models:detector", True, id="an allowed module"),
        pytest.param(("traffic.models",), "traffic.functions:crop", False, id="a sibling of an allowed module"),
        pytest.param(("traffic",), "trafficjam.models:detector", False, id="the prefix of a name is not a package"),
        pytest.param(("traffic",), "os:system", False, id="another package"),
        pytest.param((), "traffic.models:detector", False, id="no module allowed"),
    ],
)
def test_modules_are_allowed_by_whole_names(allowed: tuple[str, ...] | None, entrypoint: str, want: bool) -> None:
    assert (policy(modules=allowed).entrypoint_problem(entrypoint) == "") == want


@pytest.mark.parametrize(
    ("file", "want"),
    [
        pytest.param("/models/a/b.pt2", True, id="in the directory"),
        pytest.param("file:///models/b.pt2", True, id="as a URI"),
        pytest.param("s3://models/b.pt2", True, id="in the bucket"),
        pytest.param("/models/../etc/b.pt2", False, id="outside by .."),
        pytest.param("file:///models/%2e%2e/etc/b.pt2", False, id="outside by encoded .."),
        pytest.param("/modelss/b.pt2", False, id="beside it"),
        pytest.param("models/b.pt2", False, id="relative to the working directory"),
        pytest.param("s3://models.evil/b.pt2", False, id="another bucket"),
        pytest.param("s3://other/models/b.pt2", False, id="the directory in another bucket"),
        pytest.param("https://models/b.pt2", False, id="another scheme"),
        pytest.param("//models/b.pt2", False, id="a host"),
        pytest.param("s3://models/b.pt2::https://evil/b.pt2", False, id="a chain of fsspec"),
    ],
)
def test_files_are_allowed_by_place(file: str, want: bool) -> None:
    places = policy(files=("/models/", "s3://models/"))

    assert (places.source_problem(ModelSource(file=file)) == "") == want
    assert policy().source_problem(ModelSource(file=file)) == ""


@pytest.mark.parametrize(
    ("file", "sha256", "want_words"),
    [
        pytest.param("/models/a.pt2", None, "", id="without a digest"),
        pytest.param("/models/a.pt2", DIGEST, "", id="with the same digest"),
        pytest.param("/models/a.pt2", "1" * 64, f"must have the digest {DIGEST}", id="with another digest"),
        pytest.param("file:///models/./%61.pt2", "1" * 64, "must have the digest", id="by another name"),
        pytest.param("s3://models/a.pt2", None, "", id="remote"),
        pytest.param("/shared/a.pt2", "1" * 64, "must have the digest", id="also in an allowed directory"),
        pytest.param("/shared/b.pt2", None, "has no digest", id="only in an allowed directory"),
        pytest.param("/models/b.pt2", DIGEST, "not in a location", id="beside it"),
        pytest.param("/models/a.pt2/b.pt2", DIGEST, "not in a location", id="below it"),
        pytest.param("/models/a.pt2.pt2", DIGEST, "not in a location", id="a longer name"),
    ],
)
def test_the_platform_can_list_files_with_their_digests(file: str, sha256: str | None, want_words: str) -> None:
    listed = tuple(f"{name}@sha256:{DIGEST}" for name in ("/models/a.pt2", "s3://models/a.pt2", "/shared/a.pt2"))
    problem = policy(files=(*listed, "/shared/"), require_digest=True).source_problem(
        ModelSource(file=file, sha256=sha256)
    )

    assert want_words in problem
    assert (problem == "") == (want_words == "")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param("http://triton.models.svc:8000", True, id="the server"),
        pytest.param("http://triton.models.svc:8000/a/b", True, id="below it"),
        pytest.param("http://vllm.models.svc/teams/vision/llama", True, id="below an allowed path"),
        pytest.param("http://vllm.models.svc/teams/visions", False, id="beside an allowed path"),
        pytest.param("http://vllm.models.svc/teams/vision/../..", False, id="outside by .."),
        pytest.param("https://triton.models.svc:8000", False, id="another scheme"),
        pytest.param("http://triton.models.svc:80001", False, id="a longer port"),
        pytest.param("http://triton.models.svc", False, id="another port"),
        pytest.param("http://169.254.169.254", False, id="a cloud's metadata"),
    ],
)
def test_endpoints_are_allowed_by_the_beginning_of_their_url(url: str, want: bool) -> None:
    listed = policy(endpoints=("http://triton.models.svc:8000/", "http://vllm.models.svc/teams/vision/"))

    assert (listed.endpoint_problem(url) == "") == want
    assert "models.allowedEndpoints" in policy().endpoint_problem(url)


@pytest.mark.parametrize(
    ("rules", "revision", "want_words"),
    [
        pytest.param({}, None, "", id="nothing is set"),
        pytest.param({"hub_offline": True}, None, "", id="only where the hub is"),
        pytest.param({"modules": ("traffic",)}, None, "not one that", id="other limits of an earlier release"),
        pytest.param({"files": ("/models/",)}, None, "not one that", id="limits on files"),
        pytest.param({"require_digest": True}, None, "not one that", id="digests"),
        pytest.param({"repositories": ("acme/",)}, None, "", id="an allowed owner"),
        pytest.param({"repositories": ("acme/model",)}, "v1", "", id="an allowed repository"),
        pytest.param({"repositories": ("ac/", "acme/mod", "acme/models")}, None, "not one that", id="similar names"),
        pytest.param({"repositories": (f"acme/model@{COMMIT}",)}, None, "", id="with its commit"),
        pytest.param({"repositories": (f"acme/model@{COMMIT}",)}, COMMIT, "", id="with the same commit"),
        pytest.param(
            {"repositories": (f"acme/model@{COMMIT}", "acme/")}, "main", "must have", id="with another revision"
        ),
        pytest.param({"repositories": ("acme/",), "require_digest": True}, "main", "has no commit", id="no commit"),
        pytest.param({"repositories": ("acme/",), "require_digest": True}, COMMIT, "", id="a commit of the session"),
    ],
)
def test_repositories_are_allowed_by_owner_name_and_commit(
    rules: dict[str, Any], revision: str | None, want_words: str
) -> None:
    problem = policy(**rules).source_problem(ModelSource(hugging_face="acme/model", revision=revision))

    assert want_words in problem
    assert (problem == "") == (want_words == "")


def test_a_refusal_names_what_is_allowed_and_what_to_do() -> None:
    problem = policy(modules=("traffic",)).entrypoint_problem("os:system")
    assert "(traffic)" in problem
    assert "models.allowedModules" in problem
    problem = policy(files=("/models/",)).source_problem(ModelSource(file="/etc/m.pt2"))
    assert "(/models/)" in problem
    assert "models.allowedFiles" in problem
    assert "set sha256" in policy(require_digest=True).source_problem(ModelSource(file="/models/m.pt2"))
    problem = policy(repositories=("google/",)).source_problem(ModelSource(hugging_face="acme/model"))
    assert "(google/)" in problem
    assert "models.allowedRepositories" in problem


@pytest.mark.parametrize(
    ("fields", "want_words"),
    [
        pytest.param({"modules": ["a:b"]}, "modules", id="not a module"),
        pytest.param({"files": ["/models"]}, "ending with a slash", id="not a whole directory"),
        pytest.param({"files": ["/"]}, "must be a directory", id="everything"),
        pytest.param({"files": ["/a.pt2@sha256:12"]}, "must be a directory", id="half a digest"),
        pytest.param({"files": [f"a.pt2@sha256:{DIGEST}"]}, "must be a directory", id="a relative file"),
        pytest.param({"files": [f"/a@sha256:{DIGEST}", f"/./a@sha256:{'1' * 64}"]}, "two digests", id="two digests"),
        pytest.param({"endpoints": ["http://a:80"]}, "endpoints", id="not a whole host"),
        pytest.param({"endpoints": ["http://a@b/"]}, "endpoints", id="a user in a URL"),
        pytest.param({"repositories": ["acme"]}, "repositories", id="not an owner"),
        pytest.param({"repositories": ["acme/model@main"]}, "repositories", id="a branch in place of a commit"),
        pytest.param({"repositories": [f"a/b@{COMMIT}", f"a/b@{'d' * 40}"]}, "two commits", id="two commits"),
        pytest.param({"moduls": []}, "moduls", id="unknown field"),
    ],
)
def test_an_invalid_policy_is_refused(fields: dict[str, Any], want_words: str) -> None:
    with pytest.raises(ValueError, match=want_words):
        ModelPolicy.model_validate(fields)


@pytest.mark.usefixtures("no_trace")
async def test_a_forbidden_entrypoint_is_never_imported() -> None:
    with pytest.raises(ModelError, match="not in a module that the platform allows") as refused:
        load_model(ModelSource(entrypoint=f"{FORBIDDEN}:model"))
    assert refused.value.reason == "Forbidden"

    with pytest.raises(FunctionError, match="may not be loaded"):
        await FunctionProcess.start([f"{FORBIDDEN}:model"])
    assert FORBIDDEN not in sys.modules
    assert "PARTITA_TEST_IMPORTED" not in os.environ


@pytest.mark.usefixtures("no_trace")
async def test_names_that_an_allowed_module_imports_are_not_allowed() -> None:
    with pytest.raises(ModelError, match="use a callable that is defined in an allowed module") as refused:
        load_model(ModelSource(entrypoint=f"{HERE}.sample_models:borrowed"))
    assert refused.value.reason == "Forbidden"
    with pytest.raises(FunctionError, match="may not be called"):
        await FunctionProcess.start([f"{HERE}.sample_models:borrowed"])


@pytest.mark.usefixtures("no_trace")
def test_profiling_runs_refuse_forbidden_models() -> None:
    request = {
        "model": {"entrypoint": f"{FORBIDDEN}:model"},
        "input": {"shape": [3]},
        "blocks": 1,
        "batchSizes": [1],
        "pool": "fast",
    }
    run = subprocess.run(
        [sys.executable, "-m", "partita_profiling", "--request", "-"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert '"reason":"Forbidden"' in run.stdout
    assert "models.allowedModules" in run.stdout


def test_processes_get_the_policy_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = policy(modules=("traffic",), require_digest=True)
    environment = with_policy({"working_dir": "w", "env_vars": {"A": "1"}}, allowed)

    monkeypatch.setenv(VARIABLE, environment["env_vars"][VARIABLE])

    assert policy_here() == allowed
    assert environment["env_vars"]["A"] == "1"
    assert with_policy({"working_dir": "w"}, policy()) == {"working_dir": "w"}


def exported(path: Path) -> Path:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    torch.export.save(program, path)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_compared_with_its_digest(tmp_path: Path) -> None:
    path = exported(tmp_path / "m.pt2")

    load_model(ModelSource(file=str(path), sha256=sha256(path)))
    with pytest.raises(ModelError, match=sha256(path)) as refused:
        load_model(ModelSource(file=str(path), sha256=DIGEST))
    assert refused.value.reason == "Forbidden"


def test_remote_files_are_fetched_only_from_allowed_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content = exported(tmp_path / "m.pt2").read_bytes()
    fsspec.filesystem("memory").pipe("/bucket/m.pt2", content)
    source = ModelSource(file="memory://bucket/m.pt2", sha256=hashlib.sha256(content).hexdigest())

    with pytest.raises(ModelError, match="the platform allows"):
        load_model(source)
    monkeypatch.setenv(VARIABLE, policy_text(policy(files=("memory://bucket/",))))
    load_model(source)
    with pytest.raises(ModelError, match="does not match its digest"):
        load_model(source.model_copy(update={"sha256": DIGEST}))
    with pytest.raises(ModelError, match="sha256"):
        load_model(source.model_copy(update={"sha256": None}))


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_a_plain_pickle_is_refused_and_not_run(suffix: str, tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / f"m{suffix}"
    torch.save(Intruder(trace), path)

    with pytest.raises(ModelError, match=r"torch\.(jit|export)\.save"):
        load_model(ModelSource(file=str(path)))
    assert not trace.exists()
