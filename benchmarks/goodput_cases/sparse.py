"""Many models on few GPUs: requests of one model are rare, so that hardly any share a batch."""

from collections.abc import Sequence

from benchmarks.goodput_cases.measure import Effort, Model, Row, say, shared

POLICIES = ("Deferred", "Eager", "Shepherd", "Clockwork")
CASES = ((64, 8, 25.0), (200, 16, 40.0), (16, 4, 25.0))
"""Models, GPUs, SLO (ms)."""


def sparse(effort: Effort) -> Sequence[Row]:
    """Goodput of many ResNet50 on few GPUs, and what is in time and idle at two thirds of eager batching's."""
    rows = []
    for count, gpus, slo_ms in CASES:
        models = [Model(f"resnet-{number}", 1.053, 5.072, slo_ms) for number in range(count)]
        deployed = {policy: shared(models, gpus, policy) for policy in POLICIES}
        bound = 1000 * gpus / models[0].latency_ms(2) * 2
        found = {policy: deployed[policy].goodput(bound, effort) for policy in POLICIES}
        offered = 2 / 3 * found["Eager"]
        for policy, deployment in deployed.items():
            reports = deployment.run(dict.fromkeys(deployment.slos, offered / count), effort.seconds, effort.seeds[0])
            any_report = next(iter(reports.values()))
            figures = {
                "goodput": round(found[policy]),
                "offered": round(offered),
                "in_time": round(
                    sum(r.in_time for r in reports.values()) / sum(r.offered for r in reports.values()), 4
                ),
                "idle": round(sum(any_report.idle_by_worker.values()) / gpus, 3),
            }
            rows.append(Row(f"{count} models, {gpus} GPUs, {slo_ms:g} ms", policy, figures))
            say(f"  {count} models, {gpus} GPUs, {policy}: {figures}")
    return rows
