"""The packages that Partita and its extras require, compared with the installed ones, without importing them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

InstalledVersion = Callable[[str], str | None]
"""The version of an installed distribution by its name; None if it is not installed."""


@dataclass(frozen=True)
class RequiredPackage:
    """A distribution that is required, and its installed version."""

    name: str
    required: str
    """The allowed versions, such as >=1.38; empty: any."""
    installed: str | None
    """None: not installed."""
    fits: bool
    """Whether an allowed version is installed."""


@dataclass(frozen=True)
class PackageSet:
    """The packages of one extra, or those that Partita always needs."""

    extra: str
    """Name of the extra; empty for what is always needed."""
    packages: tuple[RequiredPackage, ...]

    @property
    def unfit(self) -> tuple[RequiredPackage, ...]:
        """The packages that are missing or have another version."""
        return tuple(package for package in self.packages if not package.fits)

    @property
    def is_absent(self) -> bool:
        """Whether all of its packages are missing."""
        return all(package.installed is None for package in self.packages)


def package_set(distribution: str, extra: str, requirements: Sequence[str], installed: InstalledVersion) -> PackageSet:
    """What `distribution` requires for one extra; for the extra "", what it always requires.

    `requirements` are the lines Requires-Dist of its metadata. An extra that requires another extra of the same
    distribution has that extra's packages, too. Other lines are ignored.
    """
    found = {package.name: package for package in _required(distribution, extra, requirements, installed, ())}
    return PackageSet(extra, tuple(found[name] for name in sorted(found)))


def _required(
    distribution: str, extra: str, lines: Sequence[str], installed: InstalledVersion, outer: tuple[str, ...]
) -> Iterator[RequiredPackage]:
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if not _applies(requirement, extra):
            continue
        if canonicalize_name(requirement.name) != canonicalize_name(distribution):
            yield _compared(requirement, installed(requirement.name))
            continue
        for inner in sorted(requirement.extras - {extra, *outer}):
            yield from _required(distribution, inner, lines, installed, (*outer, extra))


def _applies(requirement: Requirement, extra: str) -> bool:
    """Whether it belongs to this extra, and not to every installation."""
    marker = requirement.marker
    if marker is None:
        return not extra
    always = marker.evaluate({"extra": ""})
    return always if not extra else not always and marker.evaluate({"extra": extra})


def _compared(requirement: Requirement, version: str | None) -> RequiredPackage:
    try:
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = False
    return RequiredPackage(requirement.name, str(requirement.specifier), version, fits)
