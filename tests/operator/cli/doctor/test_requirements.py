"""Which packages an extra requires, and whether the installed ones fit."""

import pytest

from partita_operator.cli.doctor.requirements import PackageSet, package_set

LINES = (
    "click>=8.1",
    "only-elsewhere; platform_system == 'Nowhere'",
    "torch>=2.6; extra == 'models'",
    "partita[models]; extra == 'serving'",
    "ray[serve]>=2.60; extra == 'serving'",
    "partita[serving]; extra == 'circle'",
    "partita[circle]; extra == 'circle'",
    "not a requirement at all",
)
INSTALLED = {"click": "8.5.1", "torch": "2.13.0+cu130", "ray": "2.9.0"}


def packages(extra: str, **installed: str) -> PackageSet:
    return package_set("partita", extra, LINES, (INSTALLED | installed).get)


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        pytest.param("", {"click": True}, id="always"),
        pytest.param("models", {"torch": True}, id="local version"),
        pytest.param("serving", {"ray": False, "torch": True}, id="extra of an extra"),
        pytest.param("circle", {"ray": False, "torch": True}, id="extra that requires itself"),
        pytest.param("unknown", {}, id="no such extra"),
    ],
)
def test_packages_of_an_extra(extra: str, want: dict[str, bool]) -> None:
    assert {package.name: package.fits for package in packages(extra).packages} == want


def test_the_packages_that_do_not_fit_have_their_versions() -> None:
    (old,) = packages("serving").unfit
    assert (old.name, old.required, old.installed) == ("ray", ">=2.60", "2.9.0")


@pytest.mark.parametrize("version", ["2.61.0", "2.60.0rc1", "not a version"])
def test_a_version_is_compared(version: str) -> None:
    (package,) = [p for p in packages("serving", ray=version).packages if p.name == "ray"]
    assert package.fits is (version == "2.61.0")


def test_an_extra_is_absent_if_none_of_its_packages_is_installed() -> None:
    assert package_set("partita", "models", LINES, {}.get).is_absent
    assert not packages("serving").is_absent
