"""What a user of the planner imports: exports that exist, a docstring that runs, and no needless imports."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

import partita_planner

FOREIGN = ["ray", "torch", "kopf", "kubernetes"]


@pytest.mark.parametrize("name", ["partita_planner", "partita_planner.mig", "partita_planner.subclusters"])
def test_every_export_exists(name: str) -> None:
    package = import_module(name)

    assert {export: getattr(package, export).__name__ for export in package.__all__ if export.islower()} == {
        export: export for export in package.__all__ if export.islower()
    }
    assert all(getattr(package, export) is not None for export in package.__all__)


def test_unknown_export_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute plans"):
        partita_planner.plans  # noqa: B018


def test_the_example_of_the_docstring_runs() -> None:
    tried = doctest.testmod(partita_planner)

    assert tried.attempted > 5
    assert tried.failed == 0


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_plan_needs_no_kubernetes_ray_or_torch() -> None:
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in FOREIGN)
    done = run(
        f"import sys; {blocked}; import doctest, partita_planner; sys.exit(doctest.testmod(partita_planner).failed)"
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "partita_planner",
        "partita_planner.mig",
        "partita_planner.mig.products",
        "partita_planner.prepartitioning",
        "partita_planner.problem",
        "partita_planner.session.latency",
        "partita_planner.solver.deadline",
        "partita_planner.subclusters.problem",
        "partita_planner.validation",
    ],
)
def test_modules_that_solve_nothing_do_not_import_the_solver(module: str) -> None:
    done = run(f"import sys; sys.modules['pyomo'] = None; import {module}")

    assert done.returncode == 0, done.stderr
