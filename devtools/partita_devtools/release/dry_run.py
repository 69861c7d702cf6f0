"""A release into a registry on this machine, read back as its users would."""

import shutil
from dataclasses import replace

from partita_devtools.machine.commands import Report
from partita_devtools.release.config import ReleaseConfig
from partita_devtools.release.programs import OPTIONAL_PROGRAMS, require_programs
from partita_devtools.release.publish import Published, publish
from partita_devtools.release.read_back import read_back
from partita_devtools.release.registry import local_registry
from partita_devtools.release.signing import new_key


def dry_run(config: ReleaseConfig, report: Report) -> Published:
    """Publish into a local registry, and read everything back: wheels, images by digest, signatures, the chart.

    `registry`, `plain_http` and `key` of the config are replaced. Raises DevError like `publish`, and if something
    cannot be read back; then the registry's data stay in the folder `release` of the config's state.
    """
    require_programs(config.programs | {"docker-registry"}, OPTIONAL_PROGRAMS)
    work = config.state / "release"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with local_registry(work) as host:
        report(f"registry at {host}")
        key = None if "cosign" in config.skipped else new_key(work, report)
        local = replace(config, registry=f"{host}/partita", plain_http=True, key=key)
        published = publish(local, None, report)
        read_back(local, published, work, report)
    shutil.rmtree(work)
    return published
