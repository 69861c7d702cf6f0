"""Goodput of Partita's scheduling and of other systems in the experiments of their papers.

    python benchmarks/scheduling/goodput.py [--only NAME]... [--quick] [--seed 1] [--data DIR]

Every experiment runs all policies on the same simulated GPUs and arrivals. DIR holds reference data that is not part of
this repository, `symphony/linear_profiles.csv` and `ppipe/`; without it, experiments that need it are skipped. Progress
is printed to stderr; the last line of the output is a summary in JSON.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.scheduling.goodput_cases import changing, links, margins, pooled, slices, sparse, symphony, varying
from benchmarks.scheduling.goodput_cases.measure import Effort, Experiment, say

EXPERIMENTS: dict[str, Experiment] = {
    "resnet50": symphony.resnet50,
    "inception": symphony.inception,
    "mixed": symphony.mixed,
    "fewest-gpus": symphony.fewest_gpus,
    "sparse": sparse.sparse,
    "load-proportional": symphony.load_proportional,
    "changing-load": changing.changing_load,
    "pooled": pooled.pooled,
    "margins": margins.margins,
    "wrong-bandwidth": links.wrong_bandwidth,
    "slices": slices.slices,
    "varying": varying.varying,
}


def main() -> None:
    """Run the experiments and print their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment (may be repeated)")
    parser.add_argument(
        "--quick", action="store_true", help="short and less precise simulations: seconds instead of minutes"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run at each rate")
    parser.add_argument("--data", type=Path, help="folder with the reference data")
    options = parser.parse_args()
    seeds = 1 if options.quick else 3
    effort = Effort(
        seconds=10.0 if options.quick else 30.0,
        seeds=tuple(range(options.seed, options.seed + seeds)),
        precision=0.02 if options.quick else 0.005,
        data=options.data,
        quick=options.quick,
    )
    summary: dict[str, Any] = {}
    for name in options.only or EXPERIMENTS:
        say(f"{name}: {(EXPERIMENTS[name].__doc__ or '').strip()}")
        began = time.perf_counter()
        rows = EXPERIMENTS[name](effort)
        for row in rows:
            figures = "  ".join(f"{key} {value:g}" for key, value in row.figures.items())
            print(f"{row.case:38} {row.subject:16} {figures}{'  paper: ' + row.paper if row.paper else ''}", flush=True)
        say(f"{name} took {time.perf_counter() - began:.0f} s")
        summary[name] = [{"case": r.case, "subject": r.subject, **r.figures, "paper": r.paper} for r in rows]
    print(json.dumps({"seconds": effort.seconds, "seeds": effort.seeds, "experiments": summary}))


if __name__ == "__main__":
    main()
