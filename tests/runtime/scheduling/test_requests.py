"""Requests as DAGs: the sub-requests of an answer, their deadlines, and the end of a request."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import SessionBuilder, session
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.session.module import Join
from partita_runtime.scheduling.requests import RequestGraph, SubRequest

DEADLINE = 100_000


def graph_of(builder: SessionBuilder, **budgets: int) -> RequestGraph:
    """The graph of a session whose models have these budgets in microseconds, and their downstream ones."""
    spec = builder.build().spec
    planned = [
        module(m.name, budget_micros=budgets.get(m.name, 0)).pipeline(1, stage("gpu")) for m in spec.modules if m.model
    ]
    return RequestGraph(spec, plan_of(*planned))


def traffic() -> SessionBuilder:
    """A detector, a crop after it, two classifiers, and a function that joins their answers."""
    return (
        session("traffic")
        .model("detect")
        .function("crop", max_millis=5)
        .model("car")
        .model("person")
        .function("merge", max_millis=2)
        .edge("detect", "crop")
        .edge("crop", "car", mean="1.5", most=3)
        .edge("crop", "person", mean="1", most=2)
        .edge("car", "merge")
        .edge("person", "merge")
    )


def modules_of(subs: list[SubRequest]) -> list[str]:
    return [sub.module for sub in subs]


def test_single_model() -> None:
    graph = graph_of(session("s").model("m"))
    (sub,) = graph.start(7, DEADLINE, {"m": 1})

    assert sub == SubRequest(sub.sub_id, "m", DEADLINE, (), 0)
    assert graph.finished(7) is None
    assert graph.completed(sub.sub_id) == []
    outcome = graph.finished(7)
    assert outcome is not None
    assert (outcome.results, outcome.failed) == ((sub,), None)
    assert len(graph) == 0


def test_sub_requests_that_cannot_be_in_time_are_found() -> None:
    builder = session("s").function("crop", max_millis=5).model("car").function("merge", max_millis=2)
    spec = builder.edge("crop", "car").edge("car", "merge").build().spec
    slow, fast = stage("gpu", alpha=500, beta=8_500), stage("gpu", alpha=2_000, beta=2_000)
    planned = module("car", budget_micros=30_000).pipeline(2, slow).pipeline(2, fast, fast)
    graph = RequestGraph(spec, plan_of(planned))
    (crop,) = graph.start(7, DEADLINE, {"crop": 1})

    least = 5_000 + (4_000 + 4_000) + 2_000
    assert not graph.cannot_be_in_time(crop.sub_id, DEADLINE - least)
    assert graph.cannot_be_in_time(crop.sub_id, DEADLINE - least + 1)
    (car,) = graph.completed(crop.sub_id, {"car": 1})
    assert not graph.cannot_be_in_time(car.sub_id, DEADLINE - least + 1)
    assert graph.cannot_be_in_time(crop.sub_id, 0), "it is answered"
    graph.cancel(7)
    assert graph.cannot_be_in_time(car.sub_id, 0), "no client waits for it"


def test_deadlines_leave_time_for_the_longest_path_downstream() -> None:
    graph = graph_of(traffic(), detect=10_000, car=20_000, person=30_000)

    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)
    car, person = graph.completed(crop.sub_id, {"car": 1, "person": 1})
    graph.completed(car.sub_id)
    (merge,) = graph.completed(person.sub_id)

    deadlines = [sub.deadline for sub in (detect, crop, car, person, merge)]
    assert deadlines == [DEADLINE - missing for missing in (37_000, 32_000, 2_000, 2_000, 0)]


def test_new_plan_changes_later_deadlines() -> None:
    builder = session("s").chain("first", "second")
    graph = graph_of(builder, first=1000, second=2000)
    (before,) = graph.start(0, DEADLINE, {"first": 1})
    graph.switch_plan(plan_of(module("second", budget_micros=5000).pipeline(1, stage("gpu"))))
    (after,) = graph.start(1, DEADLINE, {"first": 1})

    assert (before.deadline, after.deadline) == (DEADLINE - 2000, DEADLINE - 5000)


def test_join_runs_once_when_everything_upstream_is_answered() -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)
    cars_and_person = graph.completed(crop.sub_id, {"car": 2, "person": 1})
    assert modules_of(cars_and_person) == ["car", "car", "person"]
    first, second, person = cars_and_person

    assert graph.completed(person.sub_id) == []
    assert graph.completed(second.sub_id) == []
    (merge,) = graph.completed(first.sub_id)

    assert merge.parents == (first.sub_id, second.sub_id, person.sub_id), "in order of samples, not of answers"
    graph.completed(merge.sub_id)
    outcome = graph.finished(0)
    assert outcome is not None
    assert modules_of(list(outcome.results)) == ["merge"]


def test_a_module_with_size_classes_is_one_module_with_the_longest_of_their_budgets() -> None:
    built = session("s").function("crop", max_millis=5).sized("read", {8: None, 32: None}).function("name", 2)
    built = built.edge("crop", "read", mean="2", most=4).edge("read", "name")
    small = module("read-s8", budget_micros=10_000).pipeline(2, stage("gpu", alpha=1_000, beta=0))
    large = module("read-s32", budget_micros=30_000).pipeline(2, stage("gpu", alpha=4_000, beta=0))
    graph = RequestGraph(built.build().spec, plan_of(small, large))

    (crop,) = graph.start(0, DEADLINE, {"crop": 1})
    assert crop.deadline == DEADLINE - 32_000
    assert not graph.cannot_be_in_time(crop.sub_id, DEADLINE - 5_000 - 1_000 - 2_000), "its samples may be small"
    first, second = graph.completed(crop.sub_id, {"read": 2})
    assert modules_of([first, second]) == ["read", "read"]
    assert modules_of(graph.completed(second.sub_id)) == ["name"], "no join: it runs for each answer"
    assert modules_of(graph.completed(first.sub_id)) == ["name"]


def test_a_size_class_without_replicas_has_the_times_of_the_class_that_it_is_padded_to() -> None:
    built = session("s").function("crop", max_millis=5).sized("read", {8: None, 32: None}).edge("crop", "read")
    large = module("read-s32", budget_micros=30_000).pipeline(2, stage("gpu", alpha=4_000, beta=0))
    graph = RequestGraph(built.build().spec, plan_of(large))

    (crop,) = graph.start(0, DEADLINE, {"crop": 1})
    assert crop.deadline == DEADLINE - 30_000
    assert graph.cannot_be_in_time(crop.sub_id, DEADLINE - 5_000 - 4_000 + 1)
    assert not graph.cannot_be_in_time(crop.sub_id, DEADLINE - 5_000 - 4_000)


def test_request_goes_on_without_an_optional_answer() -> None:
    graph = graph_of(traffic().optional("car"))
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)
    first, second, person = graph.completed(crop.sub_id, {"car": 2, "person": 1})

    assert [graph.is_optional(sub.sub_id) for sub in (first, person)] == [True, False]
    assert graph.left_out(first.sub_id) == []
    assert graph.left_out(first.sub_id) == [], "it is known already"
    graph.completed(person.sub_id)
    (merge,) = graph.completed(second.sub_id)
    assert merge.parents == (second.sub_id, person.sub_id)
    graph.completed(merge.sub_id)

    outcome = graph.finished(0)
    assert outcome is not None
    assert (modules_of([*outcome.results]), outcome.failed, outcome.left_out) == (["merge"], None, {"car"})


def test_what_follows_an_optional_module_does_not_run_without_its_answer() -> None:
    builder = session("s").chain("first", "second", "third").function("merge").edge("third", "merge")
    graph = graph_of(builder.edge("first", "merge").optional("second"))
    (first,) = graph.start(0, DEADLINE, {"first": 1})
    (second,) = graph.completed(first.sub_id, {"second": 1})
    (merge,) = graph.left_out(second.sub_id)
    assert (merge.module, merge.parents) == ("merge", (first.sub_id,))


def test_a_request_with_an_optional_answer_only_ends_without_results() -> None:
    graph = graph_of(session("s").model("only").optional("only"))
    (only,) = graph.start(0, DEADLINE, {"only": 1})
    assert graph.left_out(only.sub_id) == []
    outcome = graph.finished(0)
    assert outcome is not None
    assert (outcome.results, outcome.left_out) == ((), {"only"})


def test_the_time_of_optional_modules_does_not_make_others_too_late() -> None:
    builder = session("s").function("crop", max_millis=5).function("extra", max_millis=40).edge("crop", "extra")
    graph = graph_of(builder.model("m").optional("extra"))
    (crop,) = graph.start(0, DEADLINE, {"crop": 1})
    assert not graph.cannot_be_in_time(crop.sub_id, DEADLINE - 5_000)
    (extra,) = graph.completed(crop.sub_id)
    assert graph.cannot_be_in_time(extra.sub_id, DEADLINE - 39_999)
    assert not graph.cannot_be_in_time(extra.sub_id, DEADLINE - 40_000)


def expert() -> SessionBuilder:
    """A classifier, an expert for some of its answers, and a function that joins both."""
    when = "outputs.label[0] == 1"
    built = session("s").model("classifier").model("expert").function("join", max_millis=2)
    built = built.edge("classifier", "expert", when=when).edge("classifier", "join")
    return built.edge("expert", "join", when=when)


def test_a_join_does_not_wait_for_a_module_that_does_not_get_the_answer() -> None:
    graph = graph_of(expert())
    (classifier,) = graph.start(0, DEADLINE, {"classifier": 1})
    (join,) = graph.completed(classifier.sub_id, {"expert": 0})
    assert (join.module, join.parents) == ("join", (classifier.sub_id,))
    graph.completed(join.sub_id)
    outcome = graph.finished(0)
    assert outcome is not None
    assert (modules_of([*outcome.results]), outcome.left_out) == (["join"], {"expert"})


def test_a_join_does_not_get_an_answer_that_is_withheld_from_it() -> None:
    graph = graph_of(expert())
    (classifier,) = graph.start(0, DEADLINE, {"classifier": 1})
    (ran,) = graph.completed(classifier.sub_id, {"expert": 1})
    (join,) = graph.completed(ran.sub_id, {"join": 0})
    assert (join.module, join.parents) == ("join", (classifier.sub_id,))
    graph.completed(join.sub_id)
    outcome = graph.finished(0)
    assert outcome is not None
    assert outcome.left_out == set()


@pytest.mark.parametrize("last", ["function", "model"])
def test_any_runs_for_each_answer_and_closes_with_the_last(last: str) -> None:
    built = session("s").model("root").model("left").model("right").edge("root", "left").edge("root", "right")
    built = (built.model("any") if last == "model" else built.function("any")).any_of("any").function("end")
    built = built.edge("left", "any").edge("right", "any").edge("any", "end").edge("root", "end")
    graph = graph_of(built)
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    left, right = graph.completed(root.sub_id, {"left": 1, "right": 1})
    children = {"any": 1}
    (second,) = graph.completed(right.sub_id, children)
    assert (second.module, second.parents) == ("any", (right.sub_id,))
    assert graph.completed(second.sub_id) == [], "the other answer may come"
    (first,) = graph.completed(left.sub_id, children)
    (end,) = graph.completed(first.sub_id)
    assert (end.module, {*end.parents}) == ("end", {root.sub_id, first.sub_id, second.sub_id})


def raced() -> SessionBuilder:
    """A quick and a slow way to the first of two answers; `kept` needs the root, `tail` follows the slow model."""
    built = session("s").model("root").model("quick").model("slow").model("tail").function("first").function("end")
    built = built.any_of("first", join=Join.FIRST).edge("root", "quick").edge("root", "slow").edge("slow", "tail")
    return built.edge("quick", "first").edge("tail", "first").edge("first", "end").edge("root", "end")


def test_first_runs_once_and_cancels_what_only_the_others_need() -> None:
    graph = graph_of(raced())
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    quick, slow = graph.completed(root.sub_id, {"quick": 1, "slow": 1})
    (first,) = graph.completed(quick.sub_id)
    assert (first.module, first.parents) == ("first", (quick.sub_id,))
    assert graph.take_superseded() == [slow]
    assert graph.take_superseded() == []
    assert graph.completed(slow.sub_id, {"tail": 1}) == [], "its answer comes too late"
    (end,) = graph.completed(first.sub_id)
    assert (end.module, {*end.parents}) == ("end", {root.sub_id, first.sub_id})
    graph.completed(end.sub_id)
    outcome = graph.finished(0)
    assert outcome is not None
    assert modules_of([*outcome.results]) == ["end"]


def test_first_does_not_cancel_what_clients_get() -> None:
    graph = graph_of(raced().function("other").edge("slow", "other"))
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    quick, slow = graph.completed(root.sub_id, {"quick": 1, "slow": 1})
    (first,) = graph.completed(quick.sub_id)
    assert graph.take_superseded() == []
    assert modules_of(graph.completed(slow.sub_id, {"tail": 1})) == ["other"], "the way to the first is not needed"
    assert modules_of(graph.completed(first.sub_id)) == ["end"]


def test_first_waits_for_the_others_if_an_optional_answer_is_missing() -> None:
    graph = graph_of(raced().optional("quick"))
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    quick, slow = graph.completed(root.sub_id, {"quick": 1, "slow": 1})
    assert graph.left_out(quick.sub_id) == []
    (tail,) = graph.completed(slow.sub_id, {"tail": 1})
    (first,) = graph.completed(tail.sub_id)
    assert first.parents == (tail.sub_id,)
    assert modules_of(graph.completed(first.sub_id)) == ["end"]


def test_any_does_not_run_if_nothing_upstream_does() -> None:
    when = "outputs.label[0] == 1"
    built = session("s").model("root").model("left").model("right").edge("root", "left", when=when)
    built = built.edge("root", "right", when=when).function("any").any_of("any").function("end", max_millis=1)
    built = built.edge("left", "any").edge("right", "any").edge("any", "end").edge("root", "end")
    graph = graph_of(built)
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    (end,) = graph.completed(root.sub_id, {"left": 0, "right": 0})
    assert (end.module, end.parents) == ("end", (root.sub_id,))


def test_a_function_that_does_not_get_an_answer_does_not_run() -> None:
    built = session("s").model("a").function("f").model("b").edge("a", "f", when="outputs.label[0] == 1")
    graph = graph_of(built.edge("f", "b"))
    first, second = graph.start(0, DEADLINE, {"a": 2})
    assert graph.completed(first.sub_id, {"f": 0}) == []
    (f,) = graph.completed(second.sub_id, {"f": 1})
    assert graph.completed(f.sub_id) == []
    outcome = graph.finished(0)
    assert outcome is not None
    assert outcome.left_out == set(), "it has an answer"


def test_the_time_behind_a_condition_does_not_make_the_module_before_it_too_late() -> None:
    built = session("s").function("crop", max_millis=5).model("a").endpoint("slow", max_millis=40)
    graph = graph_of(built.edge("crop", "a").edge("a", "slow", when="outputs.label[0] == 1"))
    (crop,) = graph.start(0, DEADLINE, {"crop": 1})
    assert crop.deadline == DEADLINE - 40_000, "it leaves time for it"
    assert not graph.cannot_be_in_time(crop.sub_id, DEADLINE - 44_000)


def test_join_runs_even_without_answers() -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)
    (merge,) = graph.completed(crop.sub_id, {})

    assert (merge.module, merge.parents) == ("merge", ())


def test_function_with_one_upstream_runs_for_every_answer() -> None:
    graph = graph_of(traffic())
    subs = graph.start(0, DEADLINE, {"detect": 2})

    assert [modules_of(graph.completed(sub.sub_id)) for sub in subs] == [["crop"], ["crop"]]


def test_a_module_is_closed_when_no_answer_of_it_can_follow() -> None:
    built = session("s").model("root").function("crop").model("car").model("person").model("last")
    built = built.edge("root", "crop").edge("crop", "car", most=2).edge("crop", "person").edge("root", "last")
    graph = graph_of(built.optional("last"))
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    closed = [name for name in ("root", "crop", "car", "person", "last") if graph.is_closed(0, name)]
    assert closed == []
    crop, last = graph.completed(root.sub_id, {"last": 1})
    assert (graph.is_closed(0, "root"), graph.is_closed(0, "last")) == (True, False)
    graph.left_out(last.sub_id)
    assert graph.is_closed(0, "last")
    first, second = graph.completed(crop.sub_id, {"car": 2})
    assert graph.is_closed(0, "person"), "there is none"
    graph.completed(second.sub_id)
    assert not graph.is_closed(0, "car")
    assert modules_of([*graph.so_far(0).results]) == ["car"]
    assert graph.so_far(0).left_out == {"last"}
    graph.completed(first.sub_id)
    assert graph.finished(0) is not None


def test_the_first_answer_closes_a_module_for_which_others_race() -> None:
    graph = graph_of(raced())
    (root,) = graph.start(0, DEADLINE, {"root": 1})
    quick, _ = graph.completed(root.sub_id, {"quick": 1, "slow": 1})
    (first,) = graph.completed(quick.sub_id)
    assert not graph.is_closed(0, "first")
    graph.completed(first.sub_id)
    assert graph.is_closed(0, "first")


def test_results_are_in_order_of_modules_and_samples() -> None:
    graph = graph_of(
        session("s").model("root").model("x").model("y").edge("root", "x", most=4).edge("root", "y", most=4)
    )
    roots = graph.start(0, DEADLINE, {"root": 2})
    later = graph.completed(roots[1].sub_id, {"x": 2, "y": 1})
    earlier = graph.completed(roots[0].sub_id, {"x": 1, "y": 1})
    for sub in reversed([*earlier, *later]):
        graph.completed(sub.sub_id)

    outcome = graph.finished(0)
    assert outcome is not None
    want = [(roots[0], "x", 0), (roots[1], "x", 0), (roots[1], "x", 1), (roots[0], "y", 0), (roots[1], "y", 0)]
    assert [(sub.parents, sub.module, sub.sample) for sub in outcome.results] == [
        ((root.sub_id,), name, sample) for root, name, sample in want
    ]


def test_sub_requests_beyond_the_maximum_of_the_edge_are_cut_off() -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)

    assert modules_of(graph.completed(crop.sub_id, {"car": 9, "person": 0})) == ["car"] * 3


def test_failure_ends_the_request_and_names_what_to_cancel() -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})
    (crop,) = graph.completed(detect.sub_id)
    first, second, person = graph.completed(crop.sub_id, {"car": 2, "person": 1})
    graph.completed(second.sub_id)

    assert graph.failed(first.sub_id) == [person]
    assert graph.failed(person.sub_id) == []
    assert graph.completed(person.sub_id) == []
    outcome = graph.finished(0)
    assert outcome is not None
    assert (outcome.failed, outcome.results) == (first, ())


def test_cancelled_request_is_removed() -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})

    assert graph.cancel(0) == [detect]
    assert graph.cancel(0) == []
    assert graph.request_of(detect.sub_id) is None
    assert len(graph) == 0


@pytest.mark.parametrize(
    ("call", "want_message"),
    [
        pytest.param(lambda g: g.start(0, DEADLINE, {"detect": 1}), "already in progress", id="request twice"),
        pytest.param(lambda g: g.start(1, DEADLINE, {"car": 1}), "takes no samples", id="not a root"),
        pytest.param(lambda g: g.start(1, DEADLINE, {"tram": 1}), "takes no samples", id="unknown module"),
        pytest.param(lambda g: g.completed(0, {"car": 1}), "no edge to 'car'", id="not downstream"),
        pytest.param(lambda g: g.completed(0, {"tram": 1}), "no edge to 'tram'", id="no module"),
    ],
)
def test_bad_input_changes_nothing(call: Any, want_message: str) -> None:
    graph = graph_of(traffic())
    (detect,) = graph.start(0, DEADLINE, {"detect": 1})

    with pytest.raises(ValueError, match=want_message):
        call(graph)
    assert len(graph) == 1
    assert modules_of(graph.completed(detect.sub_id)) == ["crop"]


def test_finished_of_an_unknown_request_is_an_error() -> None:
    with pytest.raises(KeyError):
        graph_of(traffic()).finished(3)


@given(st.data(), st.integers(0, 3))
@settings(deadline=None)
def test_every_request_finishes_once_all_sub_requests_are_answered(data: st.DataObject, samples: int) -> None:
    graph = graph_of(traffic())
    waiting = {0: graph.start(0, DEADLINE, {"detect": samples}), 1: graph.start(1, DEADLINE, {"detect": 1})}
    merges = dict.fromkeys(waiting, 0)
    ended: set[int] = set()
    while any(waiting.values()):
        request = data.draw(st.sampled_from([r for r, subs in waiting.items() if subs]))
        sub = waiting[request].pop(data.draw(st.integers(0, len(waiting[request]) - 1)))
        assert graph.finished(request) is None
        merges[request] += sub.module == "merge"
        children = {"car": data.draw(st.integers(0, 3)), "person": data.draw(st.integers(0, 2))}
        waiting[request] += graph.completed(sub.sub_id, children if sub.module == "crop" else None)
        if not waiting[request]:
            assert graph.finished(request) is not None
            ended.add(request)

    assert ended == {0, 1}
    assert merges == {0: 1, 1: 1}
