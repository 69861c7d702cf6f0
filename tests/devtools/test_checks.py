"""What the development tools say to `partita doctor`."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.operator.cli.doctor.pasted_commands import check_commands

from partita_devtools.checks import TOOLS, DevelopmentFacts, development_facts, findings_of
from partita_devtools.control_plane.binaries import cache_entry
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS
from partita_operator.cli.doctor.findings import CheckFinding, Level

CACHED = Path("/cache/v1.37")
HEALTHY = DevelopmentFacts(
    tools={tool.program: f"/usr/bin/{tool.program}" for tool in TOOLS},
    has_haproxy=True,
    assets=None,
    assets_missing=(),
    cached=CACHED,
    problem="",
    release="Kubernetes v1.37.2",
    python="/usr/bin/python3",
)


def found(facts: DevelopmentFacts) -> dict[str, CheckFinding]:
    findings = findings_of(facts)
    check_commands(findings)
    return {finding.check: finding for finding in findings}


def test_everything_is_installed() -> None:
    assert {finding.level for finding in found(HEALTHY).values()} == {Level.OK}


@pytest.mark.parametrize(
    ("facts", "check", "want", "message"),
    [
        pytest.param(
            replace(HEALTHY, cached=None, release=""), "Kubernetes programs", Level.WARNING, "none yet", id="no cache"
        ),
        pytest.param(replace(HEALTHY, release=""), "Kubernetes programs", Level.ERROR, "does not run", id="foreign"),
        pytest.param(
            replace(HEALTHY, assets=Path("/assets"), assets_missing=("etcd",)),
            "Kubernetes programs",
            Level.WARNING,
            "KUBEBUILDER_ASSETS=/assets has no etcd; the cache",
            id="half assets",
        ),
        pytest.param(replace(HEALTHY, assets=Path("/assets")), "Kubernetes programs", Level.OK, "/assets", id="assets"),
        pytest.param(replace(HEALTHY, has_haproxy=False), "HAProxy", Level.WARNING, "slower", id="no HAProxy"),
        pytest.param(
            replace(HEALTHY, tools={**HEALTHY.tools, "cc": None}),
            "cc",
            Level.SKIPPED,
            "not installed",
            id="no compiler",
        ),
    ],
)
def test_findings(facts: DevelopmentFacts, check: str, want: Level, message: str) -> None:
    finding = found(facts)[check]
    assert finding.level is want
    assert message in finding.message


def test_facts_come_from_the_cache_and_the_path(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path)}
    directory = cache_entry(environment)
    directory.mkdir(parents=True)
    for name in CONTROL_PLANE_PROGRAMS:
        (directory / name).write_text("#!/bin/sh\necho Kubernetes v1.37.2\n")
        (directory / name).chmod(0o755)

    facts = development_facts(environment, which=lambda program: "/bin/make" if program == "make" else None)

    assert (facts.cached, facts.release) == (directory, "Kubernetes v1.37.2")
    assert facts.assets_missing == CONTROL_PLANE_PROGRAMS
    assert (facts.tools["make"], facts.tools["cc"]) == ("/bin/make", None)


def test_a_version_that_is_none_is_a_finding() -> None:
    facts = development_facts({"PARTITA_KUBERNETES": "latest"}, which=lambda _: None)
    finding = found(facts)["Kubernetes programs"]
    assert finding.level is Level.ERROR
    assert "PARTITA_KUBERNETES=latest" in finding.message
