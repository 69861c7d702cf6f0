"""What users of the SDK import: names that exist, an example that runs, and nothing that a plan does not need."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

import partita

HEAVY = ("torch", "ray", "kopf", "kubernetes", "aiohttp", "httpx", "jwt", "cryptography", "pydantic_settings")
"""Packages of the extras."""


def run(program: str) -> subprocess.CompletedProcess[str]:
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in HEAVY)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {blocked}; {program}"], capture_output=True, text=True, check=False
    )


def test_every_name_exists() -> None:
    assert all(getattr(partita, name) is not None for name in partita.__all__)
    assert issubclass(partita.InvalidSessionError, partita.PartitaError)
    with pytest.raises(AttributeError, match="attribute Sessions"):
        partita.Sessions  # noqa: B018


@pytest.mark.parametrize("module", ["partita", "partita.after", "partita.problems", "partita.tensor"])
def test_examples_in_docstrings_run(module: str) -> None:
    tried = doctest.testmod(import_module(module))

    assert tried.attempted > 0
    assert tried.failed == 0


def test_a_session_is_built_validated_and_planned_without_the_extras() -> None:
    done = run("import doctest, partita; sys.exit(doctest.testmod(partita).failed)")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("program", "what"),
    [
        pytest.param("partita.Cluster()", "a client needs httpx", id="a cluster"),
        pytest.param("partita.Client('http://a/b/c')", "a client needs httpx", id="a client"),
    ],
)
def test_what_needs_an_extra_says_how_to_install_it(program: str, what: str) -> None:
    done = run(f"import partita; {program}")

    assert done.returncode == 1
    assert f"PartitaError: {what}; install it with: " in done.stderr
    assert "[operator]" in done.stderr


def test_a_session_loads_neither_the_solver_nor_the_kubernetes_client() -> None:
    done = run(
        "sys.modules['pyomo'] = None; import partita; "
        "partita.Session('a', slo_ms=9, requests_per_second=1).add_model('m', file='m.pt2', "
        "input=partita.Tensor([1])).manifest()"
    )

    assert done.returncode == 0, done.stderr
