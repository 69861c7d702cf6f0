"""From `kubectl apply` of a session to Ready, step by step: cold, and with the profiles of an earlier session.

A control plane, a local Ray cluster with the example's pools, and the operator as a process, all for this run. The
session is applied, waited for and deleted, N + 1 times: the first time nothing is there; then its profiles are, and
Serve runs. A step ends when its condition becomes true, looked at every 100 ms. The last line is a summary in JSON.

    python benchmarks/operator/time_to_ready.py [--example examples/traffic] [--repeats 3] [--quick]
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from partita_api.conditions import ConditionType, is_true
from partita_devtools.demo.example import Example, read_example
from partita_devtools.environment import DevConfig, dev_down, dev_up
from partita_devtools.operator_process import operator_log, start_operator, stop_operator
from partita_devtools.ray_cluster.commands import RayClusterConfig
from partita_devtools.sessions.objects import apply_manifests, manifest_client, observe
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import SessionResource

ROOT: Final = Path(__file__).parents[2]
STEPS: Final = (ConditionType.PROFILED, ConditionType.PLANNED, ConditionType.ROLLED_OUT, ConditionType.READY)
"""In the order in which they come about."""
DEADLINE_S: Final = 900.0


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--example", type=Path, default=ROOT / "examples/traffic")
    parser.add_argument("--repeats", type=int, default=3, help="how often with profiles")
    parser.add_argument("--quick", action="store_true", help="the emulated example, once with profiles")
    options = parser.parse_args()
    if options.quick:
        options.example, options.repeats = ROOT / "examples/traffic-emulated", 1
    example = read_example(options.example)
    packages = [str(example.python_path), *filter(None, sys.path)]
    ray = RayClusterConfig(nodes=example.ray_nodes, environment={"PYTHONPATH": os.pathsep.join(packages)})
    with tempfile.TemporaryDirectory() as state:
        environment = dev_up(DevConfig(state_dir=Path(state), ray=ray), _say, environment={"HOME": str(Path.home())})
        try:
            start_operator(environment, _say, dies_with_parent=True)
            summary = asyncio.run(measure(environment.kubeconfig, example, options.repeats))
        except BaseException:
            _say("\n".join(operator_log(environment.state_dir).read_text().splitlines()[-20:]))
            raise
        finally:
            stop_operator(environment.state_dir)
            dev_down(environment.state_dir, _say)
    print(json.dumps(summary))


async def measure(kubeconfig: Path, example: Example, repeats: int) -> dict[str, object]:
    """Seconds of each step: cold, and the medians of the others."""
    async with manifest_client(await load_config(kubeconfig)) as client:
        runs = [await once(client, example) for _ in range(1 + repeats)]
    return {
        "example": example.directory.name,
        "cold": _steps(runs[:1]),
        "with_profiles": _steps(runs[1:]),
        "repeats": repeats,
    }


async def once(client: KubernetesClient, example: Example) -> dict[str, float]:
    """Seconds from the manifests to each condition; the session is gone afterwards."""
    began = time.monotonic()
    await apply_manifests(client, example.pools, [example.session])
    reached: dict[str, float] = {}
    while len(reached) < len(STEPS):
        found = await observe(client, example.session, example.pools)
        for step in STEPS:
            if step not in reached and is_true(found.session.status.conditions, step):
                reached[step] = time.monotonic() - began
        if time.monotonic() - began > DEADLINE_S:
            raise SystemExit(f"not ready within {DEADLINE_S:.0f} s: {found.session.status.conditions}")
        await asyncio.sleep(0.1)
    _say(", ".join(f"{step} after {seconds:.1f} s" for step, seconds in reached.items()))
    await _delete(client, example)
    return reached


async def _delete(client: KubernetesClient, example: Example) -> None:
    meta = example.session.metadata
    await client.delete(SessionResource, meta.name, meta.namespace or "")
    while True:
        try:
            await client.get(SessionResource, meta.name, meta.namespace or "")
        except ApiError as error:
            if is_missing(error):
                return
            raise
        await asyncio.sleep(0.2)


def _steps(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Median seconds that each step took by itself, and all of them together."""
    found = {step: statistics.median(run[step] for run in runs) for step in STEPS}
    profiled, planned = found[ConditionType.PROFILED], found[ConditionType.PLANNED]
    ready = found[ConditionType.READY]
    return {
        "profiling": round(profiled, 1),
        "planning": round(planned - profiled, 1),
        "rolling_out": round(ready - planned, 1),
        "ready_after": round(ready, 1),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
