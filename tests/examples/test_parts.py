"""Each example has its parts: a page, an image, manifests, requests for `partita load`, and a check."""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.devtools.dependencies.lock import ROOT, locked, pinned
from tests.examples.conftest import EXAMPLES
from tests.examples.test_manifests import read

from partita_api.session.module import Module

LOADS = {
    "ocr": "demonstration",
    "semantic_search": "questions",
    "speech": "stream",
    "traffic": "demonstration",
}
"""The programs that write requests, by example with code of its own."""
SHARED = {"checks"}
"""Packages of several examples, none of which is in an image."""
FORMS = ("in FP32, whole", "in FP32 with FP16 at cuts")
"""What the manifests plan: no cuts, and for `traffic` the default."""
USER = re.findall(r"^USER \d.*$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def dockerfile(example: str) -> list[str]:
    return (EXAMPLES / example / "Dockerfile").read_text().splitlines()


def entrypoints(modules: tuple[Module, ...]) -> Iterator[str]:
    for module in modules:
        for source in (module.model, module.function):
            if source is not None and source.entrypoint is not None:
                yield source.entrypoint


def test_the_examples_with_code_are_known() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/__init__.py")} - SHARED == LOADS.keys()


@pytest.mark.parametrize("example", LOADS)
def test_an_example_has_its_parts(example: str) -> None:
    parts = ["README.md", "Dockerfile", "check.py", f"{LOADS[example]}.py", "manifests/session.yaml"]

    assert [part for part in [*parts, "manifests/pools.yaml"] if not (EXAMPLES / example / part).is_file()] == []


@pytest.mark.parametrize("example", LOADS)
def test_its_page_says_how_to_build_load_and_check_it(example: str) -> None:
    page = (EXAMPLES / example / "README.md").read_text()

    assert f"-f examples/{example}/Dockerfile examples" in page
    assert f"python -m {example}.{LOADS[example]} requests.npz" in page
    assert f"python examples/{example}/check.py" in page


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/manifests")), ids=lambda path: path.parent.name)
def test_the_code_of_a_manifest_is_in_an_image(path: Path) -> None:
    """That of an example, or Partita's own for classes of torch and repositories."""
    (session,) = read(path.parent.name).sessions
    packages = {entrypoint.partition(".")[0] for entrypoint in entrypoints(session.spec.modules)}

    for package in packages - {"torch"}:
        assert f"COPY {package} /models/{package}" in dockerfile(package)


@pytest.mark.parametrize("example", LOADS)
def test_an_image_copies_what_exists_and_runs_as_nobody(example: str) -> None:
    lines = dockerfile(example)
    copied = [line.split() for line in lines if line.startswith("COPY ")]
    user = [line for line in lines if line.startswith("USER ")]

    assert all((EXAMPLES / source).exists() for _, source, _ in copied)
    assert lines[-1] == "ENV PYTHONPATH=/models"
    assert user in ([], ["USER root", *USER])
    assert all("--require-hashes" in line for line in lines if "pip install" in line)


@pytest.mark.parametrize("example", LOADS)
def test_an_image_has_all_packages_in_the_versions_of_the_lock(example: str) -> None:
    """Those of the extras of Partita's image, and others by hash."""
    (extras,) = re.findall(r"EXTRAS=(\S+)", "\n".join(dockerfile(example)))
    file = EXAMPLES / example / "requirements.txt"
    text = file.read_text().replace("\\\n", " ") if file.exists() else ""
    added = [line for line in text.splitlines() if not line.startswith("#")]

    assert all(locked()[pinned(line).name][0].split() == line.split() for line in added)
    partita = required([Requirement(f"partita[{extras}]")])
    names = {canonicalize_name(pinned(line).name) for line in added}
    assert not partita & names, "Partita's image has them"
    assert required([Requirement(pinned(line).name) for line in added]) <= partita | names
    assert imported(EXAMPLES / example) <= {each.replace("-", "_") for each in partita | names}


def required(requirements: list[Requirement]) -> set[str]:
    """The names of packages and of all that they require on this machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    overridden = {each["name"]: each["requires-dist"] for each in project["tool"]["uv"]["dependency-metadata"]}
    extras = project["project"]["optional-dependencies"]
    found, seen = set(), set()
    while requirements:
        requirement = requirements.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if requirement.name == "partita":
            named = [line for extra in requirement.extras for line in extras[extra]]
            requirements += map(Requirement, [*project["project"]["dependencies"], *named])
            continue
        found.add(canonicalize_name(requirement.name))
        lines = overridden.get(requirement.name, distribution(requirement.name).requires) or []
        chosen = {"", *requirement.extras}
        for needed in map(Requirement, lines):
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in chosen):
                requirements.append(needed)
    return found


def imported(folder: Path) -> set[str]:
    """The packages that the models and the functions of an example import, by the names of their distributions."""
    named = {"cv2": "opencv_python_headless", "PIL": "pillow", "google": "protobuf"}
    own = {folder.name, "partita_runtime", "partita_api"}
    files = [folder / f"{name}.py" for name in ("models", "functions", "state", "texts", "corpus", "padding", "labels")]
    text = "\n".join(file.read_text() for file in files if file.exists())
    roots = {*re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)}
    return {named.get(root, root) for root in roots - sys.stdlib_module_names - own}


@pytest.mark.parametrize("example", LOADS)
def test_requests_are_as_the_session_takes_them(example: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"{example}.{LOADS[example]}")
    (session,) = read(example).sessions
    (root,) = [m for m in session.spec.modules if m.name not in {edge.target for edge in session.spec.edges}]

    module.write_requests(tmp_path / "requests.npz")

    with np.load(tmp_path / "requests.npz") as found:
        names = {each.name for each in root.inputs} if root.inputs else {"input"}
        assert {*found} == names
        assert all(len(found[name]) >= 8 for name in names)


def test_the_page_of_tolerances_has_the_limits_of_the_checks() -> None:
    page = (ROOT / "docs/tasks/quality.md").read_text()
    full, with_cuts = (next(line for line in page.splitlines() if line.startswith(f"| {form}")) for form in FORMS)

    assert f"at most {100 * importlib.import_module('ocr.check').ALLOWED:g} %" in full
    assert f"above {importlib.import_module('semantic_search.comparison').LEAST_COSINE}" in full
    assert f"at most {importlib.import_module('speech.comparison').ALLOWED}" in full
    assert f"at least {100 * importlib.import_module('traffic.comparison').LEAST_EQUAL:g} %" in with_cuts
