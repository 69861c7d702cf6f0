"""The quality check of a session: which plans serve, what is checked when, and what conditions say."""

from typing import Any

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.quality import Quality
from partita_api.session.plan_changes import PlanPreview
from partita_operator.reconcile.quality import AGAIN_SECONDS
from partita_runtime.serving.deploy.epochs import CheckState

LIMIT = {"samples": {"configMap": "samples"}, "metric": "Top1", "limit": "0.9"}
PLAIN = session("traffic").model("detector")


def checked(builder: SessionBuilder = PLAIN, **fields: Any) -> SessionBuilder:
    return builder.with_spec(quality=Quality.model_validate({**LIMIT, **fields}))


class Served(SimulatedCluster):
    """A cluster with one pool, samples, and one score for all plans but those in `scores`."""

    def __init__(self, score: float | None = 1.0, samples: str | None = "some") -> None:
        super().__init__(samples=samples)
        self.scores: dict[str, float | None] = {}
        self.score = lambda action: self.scores.get(action.plan, score)
        self.add(pool("fast").gpus(8).build())

    @property
    def serving(self) -> str | None:
        return self.engine.served.get("default/traffic")

    def apply(self, builder: SessionBuilder, seconds: int = 15) -> None:
        self.add(builder.build())
        self.run(seconds)

    def message(self, type: str) -> str:
        conditions = self.session("traffic").status.conditions
        return next(c.message for c in conditions if c.type == type)


@pytest.fixture
def changed() -> tuple[Served, str]:
    """A session that serves a checked plan. Its next plan answers badly; the name of that plan."""
    made = Served(score=0.5)
    made.score = lambda action: 1.0 if len(made.made_plans) == 1 else made.scores.get(action.plan, 0.5)
    made.apply(checked())
    first = made.serving
    assert first is not None
    made.apply(checked(PLAIN.rate(200)))
    return made, first


def test_the_first_plan_serves_once_its_answers_are_as_expected() -> None:
    made = Served()

    made.apply(checked())

    assert made.serving == made.made_plans[0]
    assert made.condition("traffic", "QualityMet") == ("True", "QualityMet")
    assert made.message("QualityMet").endswith("Top1 is 1 on 1 samples, and should be at least 0.9.")
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    result = made.plans[made.made_plans[0]].status.quality
    assert result is not None
    assert (result.met, result.score) == (True, "1")
    assert made.checked == made.made_plans


def test_a_first_plan_with_wrong_answers_takes_no_requests() -> None:
    made = Served(score=0.5)

    made.apply(checked())

    assert made.serving is None
    assert made.engine.applied["default/traffic"].check is CheckState.AWAITED
    for type, status in (("QualityMet", "False"), ("Ready", "False"), ("RolledOut", "False"), ("Held", "True")):
        assert made.condition("traffic", type) == (status, "QualityMissed")
    assert "Top1 is 0.5 on 1 samples, and should be at least 0.9. Correct its models" in made.message("Ready")
    assert [event.reason for _, event in made.events].count("QualityMissed") == 1


def test_a_plan_with_wrong_answers_does_not_replace_the_one_that_serves(changed: tuple[Served, str]) -> None:
    made, first = changed

    assert made.serving == first
    assert made.engine.applied["default/traffic"].plan.metadata.name == first
    assert made.engine.applied["default/traffic"].check is CheckState.OPEN
    assert made.condition("traffic", "QualityMet") == ("False", "QualityMissed")
    assert made.condition("traffic", "Ready") == ("False", "QualityMissed")
    assert f"Plan {first} keeps serving." in made.message("Ready")
    preview = made.session("traffic").status.preview
    assert isinstance(preview, PlanPreview)
    assert (preview.plan, preview.reason) == (made.made_plans[1], "QualityMissed")


def test_a_plan_that_has_failed_is_not_tried_again_also_by_a_restarted_operator(changed: tuple[Served, str]) -> None:
    made, first = changed
    made.scores[made.made_plans[1]] = 1.0

    made.restart()
    made.run(60)

    assert made.checked.count(made.made_plans[1]) == 1
    assert made.serving == first


@pytest.mark.parametrize("change", ["samples", "limit", "spec"])
def test_a_change_has_the_answers_checked_again(changed: tuple[Served, str], change: str) -> None:
    made, _ = changed
    match change:
        case "samples":
            made.scores[made.made_plans[1]] = 1.0
            made.samples = "others"
            made.run(15)
        case "limit":
            made.apply(checked(PLAIN.rate(200), limit="0.4"))
        case "spec":
            made.score = lambda _: 1.0
            made.apply(checked(PLAIN.rate(300)))

    assert made.serving == made.made_plans[-1]
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_samples_that_change_do_not_end_the_plan_that_serves() -> None:
    made = Served()
    made.apply(checked())
    made.scores[made.made_plans[0]] = 0.5

    made.samples = "others"
    made.run(15)

    assert made.serving == made.made_plans[0]
    assert made.engine.applied["default/traffic"].check is CheckState.OPEN
    assert made.condition("traffic", "QualityMet") == ("False", "QualityMissed")
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_a_plan_that_cannot_be_asked_waits_and_is_asked_again() -> None:
    made = Served(score=None)
    made.apply(checked())
    assert made.serving is None
    assert made.condition("traffic", "QualityMet") == ("Unknown", "CheckingQuality")
    assert "There is no frontend." in made.message("QualityMet")
    before = len(made.checked)

    made.scores[made.made_plans[0]] = 1.0
    made.run(AGAIN_SECONDS + 5)

    assert len(made.checked) == before + 1
    assert made.serving == made.made_plans[0]


def test_without_samples_no_plan_serves_and_nothing_is_checked() -> None:
    made = Served(samples=None)

    made.apply(checked())

    assert (made.serving, made.checked) == (None, [])
    assert made.condition("traffic", "Ready") == ("False", "SamplesMissing")
    assert made.message("QualityMet") == ("ConfigMap samples has no key samples.jsonl, or does not exist. Create it.")
    made.samples = "some"
    made.run(15)
    assert made.serving == made.made_plans[0]


def test_a_check_that_is_removed_holds_nothing_back(changed: tuple[Served, str]) -> None:
    made, _ = changed

    made.apply(PLAIN.rate(200))

    assert made.serving == made.made_plans[1]
    assert made.engine.applied["default/traffic"].check is None
    assert made.condition("traffic", "QualityMet") == ("True", "NoQuality")
    assert made.plans[made.made_plans[1]].status.quality is None


def test_a_rollback_is_not_checked(changed: tuple[Served, str]) -> None:
    made, first = changed
    made.score = lambda _: 1.0
    made.apply(checked(PLAIN.rate(300)))
    assert made.serving == made.made_plans[-1]

    made.samples, made.score = "others", lambda _: 0.0
    present = made.session("traffic")
    rollback = {"partita.dev/rollback": f"{first}@{present.metadata.generation}"}
    meta = present.metadata.model_copy(update={"annotations": rollback})
    made.add(present.model_copy(update={"metadata": meta}))
    made.run(15)

    assert made.serving == first
    assert made.condition("traffic", "Held") == ("True", "RolledBack")


def test_a_session_without_a_check_has_no_condition() -> None:
    made = Served()

    made.apply(PLAIN)

    assert made.checked == []
    assert "QualityMet" not in {c.type for c in made.session("traffic").status.conditions}
