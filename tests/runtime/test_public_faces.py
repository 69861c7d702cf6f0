"""The public names of `scheduling` and `simulation`: doctests, and their use without Kubernetes, Ray and torch."""

import doctest
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import partita_runtime.scheduling
import partita_runtime.simulation

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    pytest.param(partita_runtime.scheduling, id="scheduling"),
    pytest.param(partita_runtime.simulation, id="simulation"),
]

NOTEBOOK = """
import sys
for blocked in ("ray", "torch", "kopf", "kubernetes", "starlette", "httpx"):
    sys.modules[blocked] = None  # an import raises ImportError

from partita_planner.planning import plan
from partita_runtime.simulation import simulate
from tests.builders import linear_profiles, pool, problem, session

builder = session("one").slo(60).rate(200).model("m").planner(margin_percent=20, headroom_percent=20)
asked = problem(builder, [pool("gpu").gpus(4)], linear_profiles(["m"], {"gpu": 1.0}))
report = simulate(builder.build(), plan(asked).plan, asked.profiles, seconds=5)
assert report.offered > 500, report
assert report.attainment > 0.9, report
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_in_the_docstring_run(package: ModuleType) -> None:
    result = doctest.testmod(package)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = package.nothing


def test_importing_a_package_imports_none_of_its_modules() -> None:
    """The core may be compiled, and serving imports single modules: neither should load the rest."""
    code = (
        "import sys, partita_runtime.simulation; print(*[m for m in sys.modules if m.startswith('partita_runtime.')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["partita_runtime.simulation"]


def test_a_session_is_planned_and_simulated_without_kubernetes_ray_or_torch() -> None:
    found = subprocess.run([sys.executable, "-c", NOTEBOOK], cwd=ROOT, capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stderr
