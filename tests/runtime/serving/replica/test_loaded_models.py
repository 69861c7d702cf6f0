"""Several models on the same vGPUs: one core schedules them all. Models are loaded and unloaded while others serve."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from tests.runtime.execution import test_shared_weights as shared_weights
from tests.runtime.serving.central.local_coordinator import local_coordinator
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, post, stand, until
from tests.runtime.serving.load import Load, steady_load
from tests.runtime.serving.plans import Application, application

from partita_api.session.execution import Backend
from partita_api.session.frontend import Frontend
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import warmed
from partita_runtime.execution.executor import Array, BuiltExecutor, StageExecutor
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.replica.loaded_models import LoadedModels, VgpuMemoryError, covers

MEGABYTE = 1_000_000


def two_models(name: str = "both") -> Application:
    """a -> b, on two vGPUs that each hold both models."""
    made = application(name).model("a", outputs=((2, 2),), memory=(MEGABYTE, 0)).model("b", memory=(MEGABYTE, 0))
    return replace(made.edge("a", "b"), subcluster="all", replicas=2)


def with_a_third(app: Application, **fields: int) -> Application:
    """The same and a -> c, under another plan."""
    return app.planned("plan-2").model("c", memory=(MEGABYTE, 0), **fields).edge("a", "c")


@dataclass
class Watched:
    """An executor that records when it runs."""

    executor: StageExecutor
    began: Callable[[], None]
    ended: Callable[[], None]

    @property
    def memory_bytes(self) -> int:
        return 0

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        self.began()
        outputs = self.executor.run(inputs)
        self.ended()
        return outputs

    def warm_up(self, batch_sizes: Sequence[int]) -> None: ...


def watched(began: Callable[[], None], ended: Callable[[], None]) -> Callable[[BuiltExecutor], BuiltExecutor]:
    return lambda built: replace(built, executor=Watched(built.executor, began, ended))


def load(running: Stand, enough: Callable[[Load], bool], rate: float = 60) -> asyncio.Task[Load]:
    url = f"http://{running.url}/v2/models/{running.app.name}/infer"
    return asyncio.create_task(steady_load(url, SAMPLE, rate, enough, at_once=10))


async def test_a_vgpu_runs_one_batch_at_a_time_of_any_model() -> None:
    running_now, most = Counter[str](), 0

    def began() -> None:
        nonlocal most
        running_now["all"] += 1
        most = max(most, running_now["all"])

    app = replace(two_models(), replicas=1, batch_size=1)
    async with stand(app, wrap=watched(began, lambda: running_now.subtract(["all"]))) as running:
        answers = await asyncio.gather(*(post(running) for _ in range(20)))
        assert [status for status, _ in answers] == [200] * 20, answers
        assert most == 1
        assert [stage.ready for stage in running.session.signals().stages] == [1, 1]


async def test_every_model_runs_on_all_vgpus() -> None:
    ran = Counter[int]()
    copies = itertools.count()

    def wrap(built: BuiltExecutor) -> BuiltExecutor:
        copy = next(copies)
        return watched(lambda: ran.update([copy]), lambda: None)(built)

    async with stand(replace(two_models(), batch_size=1), wrap=wrap) as running:
        assert [stage.ready for stage in running.session.signals().stages] == [2, 2]
        answers = await asyncio.gather(*(post(running) for _ in range(60)))
        assert [status for status, _ in answers] == [200] * 60, answers
        assert set(ran) == {0, 1, 2, 3}, "two models on two vGPUs"
        assert ran.total() == 120


async def test_a_third_model_is_loaded_under_load_and_unloaded_again() -> None:
    before = two_models()
    after = with_a_third(before)
    async with stand(before) as running:
        done = False
        sending = load(running, lambda _: done)
        held_and_served = (
            ((before, after), after),
            ((after,), after),
            ((after, before), before),
            ((before,), before),
        )
        for desired, step in held_and_served:
            for vgpu in running.vgpus:
                await running.load(vgpu, *desired)
            running.session.reconfigure(step.epoch)
            await running.serves(step.plan_name)
        done = True
        sent = await sending
        assert sent.statuses == {200: sent.sent}, sent.errors
        assert {a.module for held in running.vgpus.values() for a in held.announcements} == {"a", "b"}


async def test_two_plans_use_one_copy_of_a_model_that_both_have() -> None:
    built: list[str] = []

    def count(build: StageBuild) -> BuiltExecutor:
        built.append(str(build.model.entrypoint))
        return warmed(build)

    held = LoadedModels("vgpu", "node", "127.0.0.1", count)
    before = two_models()
    after = with_a_third(before)
    smaller = replace(after.planned("plan-3"), batch_size=4)
    for apps in ((before,), (before, after), (after, smaller), (smaller,)):
        await held.load([a for app in apps for a in app.stage_arguments()[::2]], 3 * 4 * MEGABYTE)
    assert sorted(built) == ["tests.models:a", "tests.models:b", "tests.models:c"]
    assert [a.plan for a in held.announcements] == ["plan-3"] * 3
    await held.close()


async def test_a_model_that_is_too_large_is_refused_and_others_keep_serving() -> None:
    before = two_models()
    after = with_a_third(before)
    room = 2 * 4 * MEGABYTE
    async with stand(before) as running:
        for vgpu in running.vgpus:
            await running.load(vgpu, before, after, memory=room)
        running.session.reconfigure(after.epoch)
        await until(lambda: running.session.signals().warnings, "the frontend has heard of it")
        (warning,) = running.session.signals().warnings[:1]
        assert "c of plan-2 is not loaded: with it the vGPU's 3 models need 12000000 bytes" in warning
        await until(
            lambda: running.session.signals().message == "These stages have no replica yet: c/p0/0.",
            "the others are there",
        )
        assert (await post(running))[0] == 200
        for vgpu in running.vgpus:
            await running.load(vgpu, before, after, memory=2 * room)
        await running.serves("plan-2")
        assert running.session.signals().warnings == ()


async def test_a_vgpu_that_cannot_hold_its_models_reports_that() -> None:
    held = LoadedModels("vgpu", "node", "127.0.0.1")
    with pytest.raises(VgpuMemoryError, match=r"need 4000000 bytes, and 0 more for the largest batch, of 1000\."):
        await held.load(two_models().stage_arguments()[:1], 1000)
    await held.close()


def of_sizes(*sizes: int, **fields: object) -> list[StageArguments]:
    """Size classes of one model, each with 4 MB of weights and 1 MB for a batch."""
    (one,) = replace(application("sized").model("a"), subcluster="all").stage_arguments()
    memory = {"static_bytes": 4 * MEGABYTE, "dynamic_bytes": MEGABYTE}
    builds = [one.build.model_copy(update={"input": TensorSpec(shape=(size,)), **fields}) for size in sizes]
    return [
        one.model_copy(update={"module": f"a-s{size}", "build": build, **memory})
        for size, build in zip(sizes, builds, strict=True)
    ]


@pytest.mark.parametrize(
    ("fields", "memory", "want"),
    [
        pytest.param({}, 5, 3, id="weights once"),
        pytest.param({}, 4.5, 0, id="and a batch"),
        pytest.param({"backend": Backend.TENSORRT}, 13, 3, id="engines have their own"),
        pytest.param({"backend": Backend.TENSORRT}, 12, 2, id="so one does not fit"),
        pytest.param({"model": ModelSource(file="a.onnx")}, 12, 2, id="as of ONNX Runtime"),
    ],
)
async def test_the_weights_of_size_classes_count_once(fields: dict[str, object], memory: float, want: int) -> None:
    held = LoadedModels("vgpu", "node", "127.0.0.1")
    with contextlib.nullcontext() if want else pytest.raises(VgpuMemoryError, match="models need 4000000 bytes"):
        await held.load(of_sizes(16, 32, 64, **fields), int(memory * MEGABYTE))
    assert len(held.announcements) == want
    await held.close()


async def test_size_classes_on_one_vgpu_have_their_weights_once() -> None:
    held = LoadedModels("vgpu", "node", "127.0.0.1")
    classes = [
        one.model_copy(update={"build": shared_weights.of_size(size)})
        for one, size in zip(of_sizes(16, 24, 40), (16, 24, 40), strict=True)
    ]
    before = shared_weights.weights_in_memory()
    await held.load(classes, None)
    assert len(held.announcements) == 3
    assert shared_weights.weights_in_memory() - before == shared_weights.ONE
    await held.load(classes[1:], None)
    assert shared_weights.weights_in_memory() - before == shared_weights.ONE
    await held.close()


async def test_memory_is_all_weights_plus_the_largest_batch() -> None:
    app = application("dynamic").model("a", memory=(10, 1000)).model("b", memory=(10, 3000))
    app = replace(app, subcluster="all", batch_size=2)
    held = LoadedModels("vgpu", "node", "127.0.0.1")
    await held.load(app.stage_arguments(), 4 * 10 + 4 * 10 + 2 * 3000)
    assert len(held.announcements) == 2
    await held.close()
    short = LoadedModels("vgpu", "node", "127.0.0.1")
    await short.load(app.stage_arguments(), 4 * 10 + 4 * 10 + 2 * 3000 - 1)
    assert [a.module for a in short.announcements] == ["a"]
    await short.close()


async def test_a_vgpu_is_lost_with_all_of_its_models() -> None:
    async with stand(replace(two_models(), batch_size=1)) as running:
        sending = load(running, lambda load: load.sent >= 90)
        await until(lambda: running.session.meter.outcomes["in_time"] >= 20, "it serves")
        vgpu = next(iter(running.vgpus))
        held = running.vgpus.pop(vgpu)
        for announcement in held.announcements:
            running.directory.withdraw(announcement.replica)
        await held.stop()
        sent = await sending
        assert sent.statuses == {200: 90}, sent.errors
        assert [stage.ready for stage in running.session.signals().stages] == [1, 1]


async def test_two_frontends_share_vgpus_that_hold_several_models() -> None:
    app = two_models().with_spec(frontend=Frontend(replicas=2))
    after = with_a_third(app)
    async with contextlib.AsyncExitStack() as entered:
        coordinator = await entered.enter_async_context(local_coordinator(app))
        one = await entered.enter_async_context(stand(app, coordinator=coordinator))
        other = await entered.enter_async_context(stand(app, coordinator=coordinator, beside=one))
        done = False
        sending = [load(running, lambda _: done, rate=30) for running in (one, other)]
        for vgpu in one.vgpus:
            await one.load(vgpu, app, after)
        for running in (one, other):
            running.session.reconfigure(after.epoch)
        for running in (one, other):
            await running.serves("plan-2")
        for vgpu in one.vgpus:
            await one.load(vgpu, after)
        done = True
        for sent in [await task for task in sending]:
            assert sent.statuses == {200: sent.sent}, sent.errors


def test_only_the_same_model_for_smaller_batches_is_covered() -> None:
    (large,) = application("one").model("a").stage_arguments()
    (small,) = replace(application("one").model("a"), batch_size=4).stage_arguments()
    (other,) = application("one").model("b").stage_arguments()
    (slower,) = application("one").model("a", beta_micros=5000).stage_arguments()
    assert covers(large.build, small.build)
    assert not covers(small.build, large.build)
    assert not covers(large.build, other.build)
    assert not covers(large.build, slower.build)
