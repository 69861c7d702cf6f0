"""Many models on few GPUs: requests of one model are rare, so most batches have one request."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.scheduling.goodput_cases.measure import Effort, Row, bad_and_idle, say, shared
from benchmarks.scheduling.goodput_cases.symphony import RESNET50

POLICIES = ("Deferred", "Eager", "Shepherd", "Clockwork")
CASES = ((64, 8, 25.0), (200, 16, 40.0), (16, 4, 25.0))
"""Models, GPUs, SLO (ms)."""


def sparse(effort: Effort) -> Sequence[Row]:
    """Goodput of many ResNet50 on few GPUs, and bad and idle shares at two thirds of eager batching's goodput."""
    rows = []
    for count, gpus, slo_ms in CASES:
        models = [replace(RESNET50, name=f"resnet-{number}", slo_ms=slo_ms) for number in range(count)]
        deployed = {policy: shared(models, gpus, policy) for policy in POLICIES}
        in_pairs = 2 * gpus / models[0].latency_ms(2) * 1000  # requests a second, more than comes together here
        found = {policy: deployed[policy].goodput(in_pairs, effort) for policy in POLICIES}
        offered = 2 / 3 * found["Eager"]
        for policy, deployment in deployed.items():
            reports = deployment.run(dict.fromkeys(deployment.slos, offered / count), effort.seconds, effort.seeds[0])
            bad, idle = bad_and_idle(reports, gpus)
            figures = {
                "goodput": round(found[policy]),
                "offered": round(offered),
                "in_time": round(1 - bad, 4),
                "idle": round(idle, 3),
            }
            rows.append(Row(f"{count} models, {gpus} GPUs, {slo_ms:g} ms", policy, figures))
            say(f"  {count} models, {gpus} GPUs, {policy}: {figures}")
    return rows
