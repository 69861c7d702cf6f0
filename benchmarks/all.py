"""Every benchmark in turn, for the figures of docs/benchmarks/README.md.

    python benchmarks/all.py [--quick] [--only NAME]... [--data DIR] [--out report/benchmarks]

Each script in a subfolder runs in a process of its own; what it prints goes to OUT/NAME.txt, its summary to
OUT/NAME.json. DIR holds reference data that is not part of this repository (`symphony/`, `ppipe/`); benchmarks that
need it are left out without it. The last line is a summary in JSON; the exit code is 1 if a benchmark failed.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
NVIDIA = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class Arguments:
    """How a script is called."""

    quick: tuple[str, ...] = ()
    """To be done in minutes, and rougher."""
    data: str | None = None
    """Folder of the reference data that it takes as --data; None if it takes none."""
    needs_data: bool = False
    needs_gpu: bool = False
    """Whether all of it, not the quick version, needs a GPU of NVIDIA."""


ARGUMENTS = {
    "cost_strategies": Arguments(quick=("--workloads", "60")),
    "example_savings": Arguments(quick=("--quick",)),
    "formats": Arguments(quick=("--quick", "--repeats", "3")),
    "goodput": Arguments(quick=("--quick",), data="."),
    "gpu_serving": Arguments(quick=("--device", "cpu", "--quick"), needs_gpu=True),
    "node_time": Arguments(quick=("--quick",)),
    "ocr": Arguments(quick=("--quick",)),
    "operator_scale": Arguments(quick=("--quick",)),
    "padded_classes": Arguments(quick=("--quick",)),
    "planner_scaling": Arguments(quick=("--seconds", "3")),
    "ppipe_reference": Arguments(quick=("--limit", "6"), data="ppipe", needs_data=True),
    "precision": Arguments(quick=("--quick",)),
    "prepartition": Arguments(quick=("--seeds", "3")),
    "reconcile_passes": Arguments(quick=("--quick",)),
    "scheduler_throughput": Arguments(quick=()),
    "serving": Arguments(quick=("--quick",)),
    "soak": Arguments(quick=("--minutes", "1")),
    "size_class_memory": Arguments(quick=("--quick",)),
    "size_classes": Arguments(quick=("--quick",)),
    "simulator_speed": Arguments(quick=("--requests", "50000", "--repeats", "1")),
    "time_to_ready": Arguments(quick=("--quick",)),
    "subclusters": Arguments(quick=("--seconds", "2", "--seeds", "1")),
    "whole_systems": Arguments(quick=("--quick",), data="ppipe", needs_data=True),
}
"""Scripts without a line here are called without arguments."""


def main() -> None:
    """Run them, and say how that went."""
    scripts = {script.stem: script for script in sorted(HERE.glob("*/*.py"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=scripts, help="only this benchmark (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="less of each: minutes instead of hours, rougher figures")
    parser.add_argument("--data", type=Path, help="folder with the reference data")
    parser.add_argument("--out", type=Path, default=Path("report/benchmarks"), help="folder for what they print")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    how: dict[str, str] = {}
    for name in options.only or scripts:
        arguments = ARGUMENTS.get(name, Arguments())
        if arguments.needs_data and options.data is None:
            how[name] = "left out: needs --data"
        elif arguments.needs_gpu and not options.quick and not NVIDIA.exists():
            how[name] = "left out: needs a GPU"
        else:
            command = [*(arguments.quick if options.quick else ())]
            if arguments.data is not None and options.data is not None:
                command += ["--data", str((options.data / arguments.data).resolve())]
            how[name] = run(scripts[name], command, options.out)
        print(f"{name:24} {how[name]}", flush=True)
    print(json.dumps({"quick": options.quick, "benchmarks": how}))
    raise SystemExit(any(outcome.startswith("failed") for outcome in how.values()))


def run(script: Path, arguments: list[str], out: Path) -> str:
    """Run one script; how it ended."""
    began = time.perf_counter()
    result = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    (out / f"{script.stem}.txt").write_text(result.stdout)
    if result.returncode:
        return f"failed with exit code {result.returncode}"
    summary = json.loads(result.stdout.splitlines()[-1])
    (out / f"{script.stem}.json").write_text(json.dumps(summary, indent=2) + "\n")
    return f"{time.perf_counter() - began:.0f} s"


if __name__ == "__main__":
    main()
