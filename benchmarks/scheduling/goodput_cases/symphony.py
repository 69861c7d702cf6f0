"""Symphony's experiments: one model, many models, fewest GPUs, and GPU usage in proportion to the load."""

from collections.abc import Sequence
from math import ceil

from benchmarks.scheduling.goodput_cases.clairvoyant import clairvoyant_goodput, gpus_needed
from benchmarks.scheduling.goodput_cases.measure import (
    BOUND,
    Deployment,
    Effort,
    Model,
    Row,
    bad_and_idle,
    read_models,
    say,
    shared,
)
from benchmarks.scheduling.goodput_cases.nexus_plan import nexus_deployment

SINGLE = (
    "Deferred",
    "Eager",
    "Timeout:40",
    "Shepherd",
    "Nexus",
    "Clockwork",
    "Clockwork:5",
    "Clockwork:0",
    "ServeBatch:10",
)
MANY = ("Deferred", "Eager", "Nexus", "Shepherd", "Clockwork")
RESNET50 = Model("ResNet50", 1.053, 5.072, 25)
INCEPTION = Model("InceptionResNetV2", 5.090, 18.368, 70)


def resnet50(effort: Effort) -> Sequence[Row]:
    """ResNet50 on 8 GPUs, SLO 25 ms (Symphony, Table 2)."""
    return _single(RESNET50, 5839, {"Deferred": 5264, "Shepherd": 4445, "Nexus": 4027, "Clockwork": 1358}, effort)


def inception(effort: Effort) -> Sequence[Row]:
    """InceptionResNetV2 on 8 GPUs, SLO 70 ms (Symphony, Table 2)."""
    return _single(INCEPTION, 1083, {"Deferred": 926, "Shepherd": 778, "Nexus": 618, "Clockwork": 458}, effort)


def mixed(effort: Effort) -> Sequence[Row]:
    """All models of Symphony's Table 4 on 64 GPUs (Figure 9); not --quick: those with a strong batching effect, too."""
    if effort.data is None:
        return _skipped("mixed")
    rows = []
    for gpu in ("1080Ti", "A100"):
        for kind, least in (("all", 0.0), ("strong", 2.0))[: 1 if effort.quick else 2]:
            models = read_models(effort.data, gpu, lambda model, least=least: model.beta_ms > least * model.alpha_ms)
            paper = {"all": "2.0 to 2.4 times the baselines", "strong": "3.5 (1080Ti), 5.7 (A100) times"}[kind]
            found = {policy: _carried(models, 64, policy, effort) for policy in MANY}
            found[BOUND] = clairvoyant_goodput(models, 64, _bound(models, 64), effort)
            for policy, rate in found.items():
                figures = {"goodput": round(rate), "ours_to_this": round(found["Deferred"] / max(rate, 1), 2)}
                ratio = paper if policy == "Deferred" else ""
                rows.append(Row(f"{len(models)} models ({kind}), 64 {gpu}", policy, figures, ratio))
    return rows


def fewest_gpus(effort: Effort) -> Sequence[Row]:
    """The fewest A100 for 15,000 requests per second of all models (Symphony, Figure 10)."""
    if effort.data is None:
        return _skipped("fewest-gpus")
    models = read_models(effort.data, "A100")
    paper = {"Nexus": "+166 %", "Shepherd": "+90 %"}
    found = {policy: _fewest(models, 15_000, policy, effort) for policy in ("Deferred", "Eager", "Nexus", "Shepherd")}
    found[BOUND] = ceil(gpus_needed(models, 15_000, effort))
    return [
        Row(
            "GPUs for 15000 r/s, mixed, A100",
            policy,
            {"gpus": gpus, "more_than_ours": round(gpus / found["Deferred"] - 1, 2)},
            paper.get(policy, ""),
        )
        for policy, gpus in found.items()
    ]


def load_proportional(effort: Effort) -> Sequence[Row]:
    """10 ResNets, SLO 100 ms, 24 GPUs: bad rate under overload, idle fraction under low load (Symphony, 5.4)."""
    models = [Model(f"resnet-{number}", 1.053, 5.072, 100) for number in range(10)]
    gpus = 24
    rows = []
    for policy in ("Deferred", "Eager", "Nexus", "Shepherd"):
        deployment = _deploy(models, gpus, policy)
        peak = deployment.goodput(_bound(models, gpus), effort)
        for share in (0.25, 0.5, 0.75, 1.25, 1.5):
            offered = share * peak
            reports = deployment.run(dict.fromkeys(deployment.slos, offered / 10), effort.seconds, effort.seeds[0])
            bad, idle = bad_and_idle(reports, gpus)
            rows.append(
                Row(
                    f"10 ResNets, 24 GPUs, {share:g} of peak",
                    policy,
                    {
                        "peak": round(peak),
                        "bad_rate": round(bad, 3),
                        "bad_rate_wanted": round(max(0.0, 1 - 1 / share), 3),
                        "idle": round(idle, 3),
                        "idle_wanted": round(max(0.0, 1 - share), 3),
                    },
                )
            )
        say(f"  {policy} peak {peak:.0f}")
    return rows


def _single(model: Model, bound: int, paper: dict[str, int], effort: Effort) -> list[Row]:
    rows = []
    for policy in SINGLE:
        deployment = _deploy([model], 8, policy)
        best = deployment.goodput(1.1 * bound, effort)
        overload = deployment.run({model.name: 1.5 * bound}, effort.seconds, effort.seeds[0])[model.name].goodput
        figures = {"goodput": round(best), "of_bound": round(best / bound, 3), "at_1.5_bound": round(overload)}
        rows.append(Row(f"{model.name}, 8 GPUs", policy, figures, str(paper.get(policy, ""))))
        say(f"  {policy} {best:.0f}")
    return rows


def _deploy(models: Sequence[Model], gpus: int, policy: str) -> Deployment:
    return nexus_deployment(models, gpus) if policy == "Nexus" else shared(models, gpus, policy)


def _carried(models: Sequence[Model], gpus: int, policy: str, effort: Effort) -> float:
    found = _deploy(models, gpus, policy).goodput(_bound(models, gpus), effort)
    say(f"  {len(models)} models, {gpus} GPUs, {policy}: {found:.0f}")
    return found


def _bound(models: Sequence[Model], gpus: int) -> float:
    """The rate at which batches of the size of staggered execution keep all GPUs busy."""
    seconds = [m.latency_ms(m.staggered_batch(gpus)) / m.staggered_batch(gpus) / 1000 for m in models]
    return gpus * len(models) / sum(seconds)


def _fewest(models: Sequence[Model], rate: float, policy: str, effort: Effort) -> int:
    """The fewest GPUs on which every model has 99 % in time, by bisection."""
    fails, works = 0, 512
    while works - fails > 1:
        gpus = (works + fails) // 2
        deployment = _deploy(models, gpus, policy)
        reports = deployment.run(dict.fromkeys(deployment.slos, rate / len(models)), effort.seconds, effort.seeds[0])
        if min(report.attainment for report in reports.values()) >= 0.99:
            works = gpus
        else:
            fails = gpus
    say(f"  {policy}: {works} GPUs")
    return works


def _skipped(name: str) -> list[Row]:
    say(f"{name} needs --data; left out")
    return []
