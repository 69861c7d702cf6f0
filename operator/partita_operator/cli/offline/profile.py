"""`partita profile`: measures the models of sessions on this machine, as a profiling Job would."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from partita_api.digests import canonical_json
from partita_api.gpupool import GPUPoolStatus
from partita_api.profile import Profile, ProfileRequest
from partita_operator.cli.errors import BadInput
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.manifests import read_manifests
from partita_operator.cli.output import OutputFormat, emit, output_option, report, time_left, writing
from partita_operator.cli.versions import installed_versions
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.session.profiling.profiles import required_profiles
from partita_operator.settings.model import OperatorSettings, ProfilingSettings
from partita_profiling.result import REQUEST_VARIABLE, ProfileFailure, parse_result


@click.command()
@click.argument("manifests", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the profiles, one JSON file each; existing ones are kept.",
)
@click.option("--pool", "pools", multiple=True, help="Only for this GPUPool; repeatable.")
@click.option("--module", "modules", multiple=True, help="Only this module; repeatable.")
@click.option(
    "--python-path",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory from which models are imported; repeatable.",
)
@output_option
def profile(
    manifests: tuple[Path, ...],
    out: Path,
    pools: tuple[str, ...],
    modules: tuple[str, ...],
    python_path: tuple[Path, ...],
    output: OutputFormat,
) -> None:
    """Measure the blocks of the models in MANIFESTS (files or directories with GPUPools and InferenceSessions).

    This machine stands for a node of every pool, or of those given with --pool. Emulated pools use their own times.
    """
    requests = _requests(manifests, pools, modules)
    out.mkdir(parents=True, exist_ok=True)
    rows, failed = [], False
    files = {names: out / f"{'-'.join(names)}-{request.key}.json" for names, request in requests.items()}
    missing = [names for names, file in files.items() if not file.is_file()]
    started = time.monotonic()
    for names, request in requests.items():
        file = files[names]
        if names in missing:
            done = missing.index(names)
            report(_progress(names, done, len(missing), time.monotonic() - started))
            result = _run(request, python_path)
            if isinstance(result, ProfileFailure):
                failed = True
                rows.append({"module": names[0], "pool": names[1], "profile": "", "problem": result.message})
                continue
            _write(file, result)
        rows.append({"module": names[0], "pool": names[1], "profile": str(file), "problem": ""})

    def table(console: Console) -> None:
        rows_table = Table("module", "pool", "profile", "problem")
        for row in rows:
            rows_table.add_row(*row.values())
        console.print(rows_table)

    emit(rows, output, table)
    if failed:
        raise SystemExit(ExitCode.FAILED)


def _progress(names: tuple[str, str], done: int, missing: int, elapsed_s: float) -> str:
    left = time_left(done, missing, elapsed_s)
    return f"profiling {names[0]} on {names[1]} ({done + 1} of {missing}{left and f', {left}'})"


def _requests(
    manifests: tuple[Path, ...], only_pools: tuple[str, ...], only_modules: tuple[str, ...]
) -> dict[tuple[str, str], ProfileRequest]:
    """The profiles to make by (module, pool). Raises BadInput if there are none."""
    found = read_manifests(manifests)
    available = GPUPoolStatus(capacity=1)
    cluster = Cluster(pools={p.metadata.name: p.model_copy(update={"status": available}) for p in found.pools})
    settings = OperatorSettings(profiling=ProfilingSettings(versions=dict(installed_versions())))
    requests = {
        names: request
        for session in found.sessions
        for names, request in required_profiles(session, cluster, settings).requests.items()
        if (not only_modules or names[0] in only_modules) and (not only_pools or names[1] in only_pools)
    }
    if not requests:
        raise BadInput(
            "there is nothing to profile: give manifests with at least one GPUPool and one InferenceSession that may "
            "use it. --pool and --module must be names in these manifests"
        )
    return requests


def _write(file: Path, profile: Profile) -> None:
    """Write the profile in one step: an interrupted command leaves no half file, which would count as a profile."""
    part = file.with_suffix(".part")
    try:
        with writing(file):
            part.write_text(profile.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _run(request: ProfileRequest, python_path: tuple[Path, ...]) -> Profile | ProfileFailure:
    """Run the profiler in a separate process, and print its progress. It ends with this command."""
    path = [*(str(p.absolute()) for p in python_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", "partita_profiling"],
        env={**os.environ, REQUEST_VARIABLE: canonical_json(request), "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C on a terminal reaches only this command, which then stops the profiler.
        process_group=0,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if not line.startswith("PARTITA-PROFILE"):
                    report(f"  {line.rstrip()}")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return parse_result("".join(lines))
