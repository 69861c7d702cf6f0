"""Since when a frontend uses its plan: the frontends of a session report the plan that one of them has used longest."""

from tests.runtime.serving.in_process.stand import stand, until
from tests.runtime.serving.plans import Application, application

from partita_runtime.serving.session.session import Session
from partita_runtime.serving.transport.clock import now_micros

APP = application("one").model("only")


def uses(session: Session, app: Application) -> bool:
    return session.serving is not None and session.serving.epoch == app.epoch


async def test_age_counts_from_the_moment_of_the_switch() -> None:
    after = APP.planned("plan-2", batch_size=4)
    async with stand(APP) as running:
        asked = now_micros()
        running.session.reconfigure(after.epoch)
        await running.add_replicas(after)
        await until(lambda: uses(running.session, after), "the frontend uses plan-2")
        assert running.session.serving is not None
        assert asked <= running.session.serving.plan_since <= now_micros()


async def test_another_epoch_of_the_same_plan_is_as_old_as_the_plan() -> None:
    after = APP.slo(APP.slo_ms + 1)
    async with stand(APP) as running:
        assert running.session.serving is not None
        since = running.session.serving.plan_since
        running.session.reconfigure(after.epoch)
        await until(lambda: uses(running.session, after), "the frontend uses the new SLO")
        assert running.session.serving.plan_since == since > 0
