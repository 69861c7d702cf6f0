"""Plans for measured fan-outs and shares instead of the declared ones."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import signals
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.inferencesession import Rate, RateSource
from partita_api.meta import PAUSED_ANNOTATION
from partita_operator.reconcile.session.measured import with_counted_traffic
from partita_operator.settings.model import ModelsSettings, OperatorSettings
from partita_planner.planning import plan
from partita_planner.session.session_graph import module_rates
from partita_runtime.autoscaling.latency import latency_key
from partita_runtime.autoscaling.traffic import EdgeDecision, TrafficCounts, TrafficHistory, decision_key, edge_key

KEY = "default/traffic"
EDGE = ("detector", "plates")
RATE = 100


def application(fan_out: str = "1", most: int = 8, source: RateSource = RateSource.OBSERVED) -> SessionBuilder:
    built = session("traffic").model("detector").model("plates")
    built = built.edge("detector", "plates", fan_out, most, when="outputs[0] > 0", share="20%")
    return built.with_spec(rate=Rate(requests_per_second=RATE, source=source))


class Running:
    """A session whose frontends count."""

    def __init__(self, built: SessionBuilder) -> None:
        models = ModelsSettings(allowed_endpoints=("http://plates.models.svc/",))
        self.made = SimulatedCluster(settings=OperatorSettings(models=models))
        self.made.add(pool("fast").gpus(64).build(), built.build())
        self.made.run(15)
        self._answers = self._taken = self._sent = 0
        self._calls, self._samples = Counter[str](), Counter[str]()

    def count(self, share: float, fan_out: float, seconds: int) -> None:
        """For so many seconds, answers of the detector that are sent on and multiplied like this."""
        for _ in range(0, seconds, 5):
            taken = round(5 * RATE * share)
            self._answers, self._taken = self._answers + 5 * RATE, self._taken + taken
            self._sent += round(taken * fan_out)
            decided = {EdgeDecision.TAKEN: self._taken, EdgeDecision.NOT_TAKEN: self._answers - self._taken}
            counts = TrafficCounts(
                decided={decision_key(*EDGE, decision): count for decision, count in decided.items()},
                sent={edge_key(*EDGE): self._sent},
            )
            self.made.engine.reported[KEY] = replace(signals(None, RATE), traffic=counts)
            self.made.run(5, every=5)

    def call(self, endpoint: str, millis: int, seconds: int) -> None:
        """For so many seconds, calls of an endpoint that take so long."""
        for _ in range(0, seconds, 5):
            self._calls[latency_key(endpoint, millis * 1000)] += 5 * RATE
            counts = TrafficCounts(endpoint_calls=dict(self._calls))
            self.made.engine.reported[KEY] = replace(signals(None, RATE), traffic=counts)
            self.made.run(5, every=5)

    def fit(self, shares: dict[str, float], seconds: int) -> None:
        """For so many seconds, samples that fit into these size classes."""
        for _ in range(0, seconds, 5):
            self._samples.update({name: round(5 * RATE * share) for name, share in shares.items()})
            counts = TrafficCounts(size_classes=dict(self._samples))
            self.made.engine.reported[KEY] = replace(signals(None, RATE), traffic=counts)
            self.made.run(5, every=5)

    @property
    def planned_millis(self) -> list[int | None]:
        """What the problems that were solved reserve for the endpoint."""
        return [problem.spec.modules[1].reserved_millis for problem in self.made.problems]

    @property
    def planned(self) -> list[float]:
        """Calls per second of the module behind the edge, of each problem that was solved."""
        return [round(module_rates(problem.spec, problem.rate)["plates"], 3) for problem in self.made.problems]


def test_a_measured_share_and_fan_out_that_last_lead_to_another_plan() -> None:
    running = Running(application())
    running.made.solve = plan
    running.count(share=0.2, fan_out=1, seconds=300)
    assert running.planned == [20], "as declared"
    running.count(share=0.4, fan_out=3, seconds=30)
    assert running.planned == [20], "it may be a burst"
    running.count(share=0.4, fan_out=3, seconds=90)
    assert running.planned[-1] == 120
    status = running.made.session("traffic").status
    assert status.measured is not None
    (edge,) = status.measured.edges
    assert (edge.share, edge.declared_share, edge.fan_out, edge.declared_fan_out) == ("40%", "20%", "3", "1")
    assert status.current_plan is not None
    assert running.made.plans[status.current_plan.name].spec.measured == status.measured, "the plan says it"


def test_a_lower_share_leads_to_a_smaller_plan_later() -> None:
    running = Running(application())
    running.count(share=0.05, fan_out=1, seconds=290)
    assert running.planned == [20]
    running.count(share=0.05, fan_out=1, seconds=60)
    assert running.planned == [20, 5]


def test_the_bound_of_a_fan_out_is_kept() -> None:
    running = Running(application(most=2))
    running.count(share=0.2, fan_out=1.96, seconds=120)
    assert running.planned == [20, 40], "not 2.0 rounded up to more than its max"


def test_a_share_that_goes_up_and_down_leads_to_one_plan() -> None:
    running = Running(application())
    for _ in range(6):
        running.count(share=0.3, fan_out=1, seconds=120)
        running.count(share=0.25, fan_out=1, seconds=120)
    assert running.planned == [20, 30]


def test_measured_values_survive_a_restart_of_the_operator() -> None:
    running = Running(application())
    running.count(share=0.4, fan_out=1, seconds=120)
    running.made.restart()
    running.made.engine.reported.clear()
    running.made.run(60)
    assert running.planned == [20, 40]


def test_frontends_that_begin_to_count_again_change_nothing() -> None:
    running = Running(application())
    running.count(share=0.4, fan_out=1, seconds=120)
    running._answers = running._taken = running._sent = 0
    running.count(share=0.4, fan_out=1, seconds=600)
    assert running.planned == [20, 40]


def test_another_declared_value_counts_until_it_is_measured() -> None:
    running = Running(application())
    running.count(share=0.4, fan_out=1, seconds=120)
    running.made.add(application(fan_out="2").build())
    running.made.run(15)
    assert running.planned == [20, 40, 40], "a fan-out of 2 with the declared share"
    assert running.made.session("traffic").status.measured is None


@pytest.mark.parametrize(
    ("built", "annotations"),
    [
        pytest.param(application(source=RateSource.DECLARED), {}, id="a declared rate"),
        pytest.param(application(), {PAUSED_ANNOTATION: "true"}, id="a paused session"),
    ],
)
def test_declared_values_stay(built: SessionBuilder, annotations: dict[str, str]) -> None:
    running = Running(built)
    paused = running.made.session("traffic")
    meta = paused.metadata.model_copy(update={"annotations": annotations})
    running.made.add(paused.model_copy(update={"metadata": meta}))
    running.count(share=0.8, fan_out=3, seconds=600)
    assert running.planned == [20]
    assert running.made.session("traffic").status.measured is None


def test_only_the_session_s_edges_are_remembered_whatever_frontends_report() -> None:
    """Code of a session can replace its frontend, and must not fill the operator's memory."""
    made_up = {f"edge-{number}/to/taken": number for number in range(10_000)}
    reported = TrafficCounts(decided={decision_key(*EDGE, EdgeDecision.TAKEN): 7, **made_up}, sent=made_up)
    history = TrafficHistory()
    for at in range(0, 100, 5):
        made = replace(signals(None, RATE), traffic=reported)
        history = with_counted_traffic(history, application().build(), made, float(at))
    assert {tuple(counts.decided.items()) for _, counts in history.samples} == {(("detector/plates/taken", 7),)}
    assert not any(counts.sent for _, counts in history.samples)


def test_an_endpoint_that_answers_faster_leaves_more_of_the_slo_to_models() -> None:
    built = session("traffic").model("detector").endpoint("plates", max_millis=50).edge("detector", "plates").slo(100)
    running = Running(built.with_spec(rate=Rate(requests_per_second=RATE, source=RateSource.OBSERVED)))
    running.made.solve = plan
    took = {30: 400, 600: 10}
    for seconds, millis in took.items():
        running.call("plates", millis, seconds)
    assert running.planned_millis == [50, 11], "as declared, and once it has lasted, with its step"
    status = running.made.session("traffic").status
    assert status.measured is not None
    assert [(each.module, each.declared_millis) for each in status.measured.endpoints] == [("plates", 50)]
    applied = running.made.engine.applied[KEY]
    assert [m.reserved_millis for m in applied.session.spec.modules] == [None, 11], "frontends reserve as much"
    running.call("plates", 400, 120)
    assert running.made.session("traffic").status.measured is None, "at most what is declared"
    applied = running.made.engine.applied[KEY]
    assert [m.reserved_millis for m in applied.session.spec.modules] == [None, 50], "the first plan again"


SIZED = session("traffic").sized("bert", {64: "50%", 512: "50%"})


def shares_planned(running: Running) -> list[list[str | None]]:
    """Of the size classes, in each problem that was solved."""
    return [[size.share for size in problem.spec.modules[0].sizes or ()] for problem in running.made.problems]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param((0.123456, 0.876544), ["12.4%", "87.6%"], id="rounded"),
        pytest.param((0.0, 1.0), ["0.1%", "99.9%"], id="a class without samples keeps a share"),
    ],
)
def test_measured_shares_of_size_classes_that_last_lead_to_another_plan(
    found: tuple[float, float], want: list[str]
) -> None:
    running = Running(SIZED.with_spec(rate=Rate(requests_per_second=RATE, source=RateSource.OBSERVED)))
    running.fit(dict(zip(("bert-s64", "bert-s512"), found, strict=True)), 90)
    assert shares_planned(running) == [["50%", "50%"], want]
    measured = running.made.session("traffic").status.measured
    assert measured is not None
    assert [(each.module, [*each.shares], [*each.declared_shares]) for each in measured.sizes] == [
        ("bert", want, ["50%", "50%"])
    ]
    running.made.restart()
    running.fit({}, 30)
    assert shares_planned(running)[-1] == want, "another operator goes on with them"


def test_declared_shares_of_size_classes_stay_if_the_rate_is_declared() -> None:
    running = Running(SIZED.with_spec(rate=Rate(requests_per_second=RATE)))
    running.fit({"bert-s512": 1.0}, 600)
    assert shares_planned(running) == [["50%", "50%"]]
