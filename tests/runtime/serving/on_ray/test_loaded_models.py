"""Several models on the same emulated GPUs of a real Ray cluster, deployed like by the operator.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.runtime.serving.on_ray.deployment import Deployment, Loading
from tests.runtime.serving.plans import application

pytestmark = pytest.mark.ray

TWO = replace(
    application("together")
    .model("large", outputs=((2, 2),), alpha_micros=0, beta_micros=100_000)
    .model("small", alpha_micros=0, beta_micros=10_000)
    .edge("large", "small"),
    subcluster="all",
    replicas=2,
    batch_size=1,
    slo_ms=6000,
)
"""A GPU serves 10 requests per second of the large model.

So two GPUs serve about 18 of both models, in any division.
"""
THREE = TWO.planned("plan-2").model("late", alpha_micros=0, beta_micros=10_000).edge("large", "late")
SUBCLUSTER = "partita.default.together.emulated.1.all.subcluster"


@pytest.fixture(scope="module")
def together(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(TWO)
    yield deployment
    deployment.remove(lambda name: ".together." in name)


def test_two_models_share_two_gpus_although_each_load_needs_more_than_one(together: Deployment) -> None:
    loading = Loading(together, TWO, rate=13)
    together.until(lambda: loading.sent() >= 240, "the backlog of one GPU would be longer than the SLO")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
    assert together.ready_replicas(TWO) == [2, 2]


def test_a_third_model_is_loaded_under_load_on_the_gpus_that_serve(together: Deployment) -> None:
    before = {replica["replica_id"] for replica in replicas(together)}
    loading = Loading(together, TWO, rate=8)
    together.until(lambda: together.signals(TWO)["goodput"] > 2, "load is on")
    together.apply_both(TWO, THREE)
    together.until(lambda: together.running(SUBCLUSTER), "the third model is loaded")
    together.apply_frontend(THREE)
    together.until(lambda: together.signals(THREE)["plan"] == "plan-2", "plan-2 serves")
    together.apply_stages(THREE)
    together.until(lambda: together.running(SUBCLUSTER), "plan-1 is forgotten")
    served = loading.sent()
    together.until(lambda: loading.sent() > served + 10, "load goes on")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
    assert together.ready_replicas(THREE) == [2, 2, 2]
    assert {replica["replica_id"] for replica in replicas(together)} == before, "no process was started"


def replicas(deployment: Deployment) -> list[dict[str, str]]:
    return [replica for replica in deployment.replicas() if replica["application"] == SUBCLUSTER]
