"""The lock of dependencies: complete, with hashes, used by every installation, and for one version of Python."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.devtools.dependencies.lock import ROOT, locked, pinned

PYTHON = "3.11"
PROJECTS = ("pyproject.toml", "devtools/pyproject.toml")
OWN = {"partita", "partita-devtools"}
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def direct(*files: str) -> Iterator[Requirement]:
    """What the packages of these files require of others, with all extras."""
    for file in files:
        project = tomllib.loads((ROOT / file).read_text())["project"]
        for texts in (project["dependencies"], *project.get("optional-dependencies", {}).values()):
            yield from (each for each in map(Requirement, texts) if each.name not in OWN)


def required() -> Iterator[tuple[str, Requirement]]:
    """All requirements on this machine with who has them, as far as the packages are installed here."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    overridden = {each["name"]: each["requires-dist"] for each in tools["uv"]["dependency-metadata"]}
    open_ = [("pyproject.toml", requirement) for requirement in direct(*PROJECTS)]
    seen = set()
    while open_:
        source, requirement = open_.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        yield source, requirement
        try:
            lines = overridden.get(requirement.name, distribution(requirement.name).requires) or []
        except PackageNotFoundError:
            continue
        for needed in map(Requirement, lines):
            extras = {"", *requirement.extras}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                open_.append((requirement.name, needed))


def test_the_lock_has_one_version_of_each_package_with_hashes() -> None:
    wrong = [
        lines[0].partition(" ")[0]
        for lines in locked().values()
        if len(lines) > 1
        or not re.fullmatch(r"==[^,*]+", str(pinned(lines[0]).specifier))
        or not re.fullmatch(rf"[^#]*?(\s+{HASH.pattern})+\s*", lines[0])
    ]

    assert len(locked()) > 200
    assert not wrong


def test_the_lock_agrees_with_what_the_packages_require() -> None:
    """`make lock` renews it."""
    missing = [
        f"{source} requires {requirement}"
        for source, requirement in required()
        for lines in [locked().get(canonicalize_name(requirement.name))]
        if lines is None
        or not requirement.specifier.contains(str(pinned(lines[0]).specifier).removeprefix("=="), prereleases=True)
    ]

    assert not missing


@pytest.mark.parametrize("file", PROJECTS)
def test_the_lock_has_no_direct_dependency_that_is_gone(file: str) -> None:
    """`make lock` renews it. The comments of the lock say who requires each package."""
    entries = re.findall(r"^([a-z0-9.-]+)==.*\n((?: .*\n)*)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    named = {name for name, comments in entries if re.search(rf"(via|#) +partita\S* \({file}\)", comments)}

    assert named == {canonicalize_name(requirement.name) for requirement in direct(file)}


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_only_what_is_here_is_installed_without_hashes(file: str) -> None:
    lines = (ROOT / file).read_text().replace("\\\n", " ").splitlines()
    commands = [command for line in lines for command in re.split(r"&&|:=.*", line)]
    installations = [each for each in commands if re.search(r"pip (\S+ )*(install|wheel) |\$\(UV_INSTALL\) ", each)]
    without = [each for each in installations if "--require-hashes" not in each and "TORCH_INDEX_URL" not in each]

    assert len(installations) >= 4
    assert len(without) == 1
    assert "--no-deps --no-build-isolation" in without[0]


@pytest.mark.parametrize("file", ["run", "audit.yaml", "release.yaml", "test.yaml"])
def test_continuous_integration_installs_packages_of_python_only_by_make(file: str) -> None:
    path = next(path for folder in (".ci", ".github/workflows") if (path := ROOT / folder / file).exists())

    assert not re.search(r"\b(pip|uv|uvx|pipx)\b.*\b(install|run|sync)\b", path.read_text())


@pytest.mark.parametrize(
    "dockerfile",
    [
        "Dockerfile",
        "tests/cluster/Dockerfile",
        *(f"examples/{name}/Dockerfile" for name in ("ocr", "semantic_search", "speech", "traffic")),
    ],
)
def test_images_start_from_a_digest_or_from_an_image_of_this_project(dockerfile: str) -> None:
    text = (ROOT / dockerfile).read_text()
    names = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.MULTILINE))
    bases = [names.get(base.strip("${}"), base) for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE)]

    assert bases
    assert not [base for base in bases if not re.search(r"^partita\.dev/|@sha256:[0-9a-f]{64}$", base)]


@pytest.mark.parametrize(
    ("file", "place"),
    [
        pytest.param("pyproject.toml", r'^requires-python = "==(.*)\.\*"$', id="package"),
        pytest.param("pyproject.toml", r"Python :: (3\..*)\"", id="classifier"),
        pytest.param("pyproject.toml", r'^python_version = "(.*)"', id="types"),
        pytest.param("devtools/pyproject.toml", r'^requires-python = "==(.*)\.\*"$', id="development tools"),
        pytest.param("Dockerfile", r"^ARG BASE=\S+/python:(3\.\d+)\S*-bookworm@", id="images"),
        pytest.param("Makefile", r"--python-version (\S+)", id="lock"),
        pytest.param(".github/workflows/test.yaml", r'python-version: "(.*)"', id="tests"),
        pytest.param(".github/workflows/release.yaml", r'python-version: "(.*)"', id="release"),
        pytest.param(".github/workflows/audit.yaml", r'python-version: "(.*)"', id="audit"),
        pytest.param("README.md", r"Python (3\S*\d)", id="README"),
        pytest.param("CONTRIBUTING.md", r"Python (3\S*\d)", id="contributing"),
        pytest.param("docs/get-started/requirements.md", r"Python (?:\| )?(3\S*\d)", id="requirements"),
        pytest.param("docs/get-started/local.md", r"Python (3\S*\d)", id="local mode"),
    ],
)
def test_there_is_one_version_of_python(file: str, place: str) -> None:
    said = re.findall(place, (ROOT / file).read_text(), re.MULTILINE)

    assert set(said) == {PYTHON}


def test_the_page_has_a_reason_for_each_direct_dependency() -> None:
    reasons = (ROOT / "docs/dependencies.md").read_text().partition("## What each package is for")[2]
    rows = re.findall(r"^\| (`.*?) \|", reasons, re.MULTILINE)
    described = {canonicalize_name(name) for row in rows for name in re.findall(r"`([^`]+)`", row)}

    assert described == {canonicalize_name(requirement.name) for requirement in direct(*PROJECTS)}
