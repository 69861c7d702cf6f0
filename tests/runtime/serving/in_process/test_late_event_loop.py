"""A frontend whose event loop is later than its initial margin."""

import asyncio
import time

from tests.runtime.serving.in_process.stand import post, stand
from tests.runtime.serving.plans import application

LATE_SECONDS = 0.025
REQUESTS = 12


async def test_the_delay_of_the_event_loop_is_learnt_before_the_first_batch() -> None:
    async with stand(application("one").model("only").slo(400).deferred()) as running:

        async def hold_the_loop_up() -> None:
            while True:
                time.sleep(LATE_SECONDS)  # noqa: ASYNC251  the loop shall be late
                await asyncio.sleep(0)

        holding = asyncio.create_task(hold_the_loop_up())
        statuses = [(await post(running))[0] for _ in range(REQUESTS)]
        holding.cancel()

    assert statuses.count(200) >= REQUESTS / 2, (
        "if only sent batches were measured, nearly all requests would be dropped"
    )
