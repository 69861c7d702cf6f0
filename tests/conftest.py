"""Fixtures and settings of all tests."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["tests.fixtures"]

# Threads of numerical libraries spin while they wait for each other, which starves what runs beside them.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# API servers of tests get objects of megabytes. Without a limit, Go keeps up to 8 GB for them; with it, 1.2 GB.
os.environ.setdefault("GOMEMLIMIT", "2GiB")

# How long an example takes says more about the machine than about the code, and a test is to say the same of the same
# code every time. To look for examples that are not yet known: HYPOTHESIS_PROFILE=search make test-fast,
# and with 20,000 of each:
# HYPOTHESIS_PROFILE=fuzz .venv/bin/pytest --timeout 0 tests/security/test_parsers.py
hypothesis.settings.register_profile(
    "partita", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("search", hypothesis.settings.get_profile("partita"), derandomize=False)
hypothesis.settings.register_profile("fuzz", hypothesis.settings.get_profile("search"), max_examples=20_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partita"))

ROOT = Path(__file__).resolve().parents[1]
CONTROL_PLANE_SECONDS = 3600
CONTROL_PLANE, RAY, END_TO_END = "control plane", "ray", "end to end"
EXAMPLES, PLANNER = "tests/examples/", "tests/planner/"
OWN_CLUSTERS = ("tests/e2e/", "tests/devtools/")
"""Folders whose tests with Ray start clusters of their own, and some a control plane beside them."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of each group that needs Kubernetes waits until it is downloaded, or built, once on a machine.

    A build takes both cores, and tests with Ray wait for it: they follow those of the planner. The longest group of
    them comes first.
    """
    items.sort(key=lambda item: _turn(item.nodeid))
    waiting: set[str] = set()
    for item in items:
        needs_kubernetes = "kubernetes_binaries" in getattr(item, "fixturenames", ())
        if needs_kubernetes and group(item.nodeid) not in waiting:
            waiting.add(group(item.nodeid))
            own = item.get_closest_marker("timeout")
            seconds = max(CONTROL_PLANE_SECONDS, own.args[0] if own is not None else 0)
            item.add_marker(pytest.mark.timeout(seconds), append=False)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a group Ray is stopped: an idle cluster takes CPU time from all tests that follow."""
    from tests.fixtures import RAY_CLUSTERS

    ends = nextitem is None or group(nextitem.nodeid) != group(item.nodeid)
    if ends and RAY_CLUSTERS in item.config.stash:
        item.config.stash[RAY_CLUSTERS].stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a group run on one worker, one after the other; groups are handed out in the order of collection."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def group(nodeid: str) -> str:
    """What a test shares: the control plane, a Ray cluster, the examples' networks, or else the fixtures of its file.

    pytest-xdist decides by the name of a test alone, so files are read for their marks.
    """
    file = nodeid.partition("::")[0]
    marks = _marks(file)
    if "ray" in marks:
        return END_TO_END if file.startswith(OWN_CLUSTERS) else RAY
    if "apiserver" in marks:
        return CONTROL_PLANE
    return EXAMPLES if file.startswith(EXAMPLES) else file


@cache
def _marks(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"pytest\.mark\.(apiserver|ray)\b", (ROOT / file).read_text()))


def _turn(nodeid: str) -> int:
    match group(nodeid):
        case name if name == CONTROL_PLANE:
            return 0
        case name if name.startswith(PLANNER):
            return 1
        case name if name == END_TO_END:
            return 2
        case name if name == RAY:
            return 3
    return 4
