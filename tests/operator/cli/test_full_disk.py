"""A full disk: every command that writes a file names it, ends with BAD_INPUT, and prints no traceback."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import pool, profile, session
from tests.operator.cli.test_interrupts import endless_session

from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow in the block: writing fails with EFBIG, whose error has no name either."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def offline(tmp_path: Path) -> list[str]:
    """Manifests and profiles, as arguments."""
    documents = (pool("fast").gpus(4).build(), session("detection").slo(200).rate(50).model("detector").build())
    (tmp_path / "all.yaml").write_text(
        yaml.safe_dump_all(d.model_dump(mode="json", by_alias=True, exclude={"status"}) for d in documents)
    )
    measured = profile("detector").on("fast").linear(1000, 5000).build()
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    return [str(tmp_path / "all.yaml"), "--profiles", str(tmp_path / "profiles")]


def partita(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def assert_bad_input(result: Result, name: str | Path) -> None:
    assert isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert f"{name} cannot be written: " in result.output


def test_a_full_device(offline: list[str]) -> None:
    assert_bad_input(partita("plan", *offline, "--explain", "0", "--out", "/dev/full"), "/dev/full")
    simulation = partita("simulate", *offline, "--seconds", "1", "--executions", "/dev/full")
    assert_bad_input(simulation, "/dev/full")


def test_requests_for_a_full_device() -> None:
    with endless_session() as url:
        options = ("--slo-ms", "100", "--seconds", "0.1", "--rate", "1", "--timeout", "0.1", "--csv", "/dev/full")
        assert_bad_input(partita("load", url, *options), "/dev/full")


def test_folders(offline: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    demand = tmp_path / "demand"
    demand.write_text("product: H100-80GB\nslices: {3g.40gb: 2}\n")
    out = tmp_path / "out"
    out.mkdir()
    partita("plan", *offline, "--explain", "0", "--plots", out / "before")  # matplotlib writes its cache
    with full_disk():
        crds = partita("crds", "--out", out)
        mig = partita("mig", demand, "--out", out)
        plots = partita("plan", *offline, "--explain", "0", "--plots", out)
    assert_bad_input(crds, out / "gpupools.yaml")
    assert_bad_input(mig, out / "mig-parted.yaml")
    assert_bad_input(plots, out)


def test_the_output_itself() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "partita_operator", "crds"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
