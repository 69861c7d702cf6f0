"""The sessions on the Ray cluster of these tests."""

from dataclasses import replace

from tests.runtime.serving.plans import application, detector_with_crops

from partita_api.session.autoscaling import Autoscaling
from partita_api.session.frontend import Frontend

TRAFFIC = detector_with_crops().slo(20_000).with_spec(frontend=Frontend(grpc_port=0, http_port=0))
NETWORK = replace(
    application("real").model(
        "network", input=(3, 16, 16), outputs=((10,),), entrypoint="tests.runtime.serving.models:convolutional"
    ),
    stages=2,
    slo_ms=20_000,
)
STEADY = replace(application("steady").model("only"), slo_ms=20_000, replicas=2)
FAILING = replace(application("failing").model("only", beta_micros=60_000), slo_ms=20_000, replicas=2)
"""It needs both replicas, one on each node, for 20 requests per second."""
SHARED = replace(application("shared").model("only"), slo_ms=20_000).with_spec(
    frontend=Frontend(replicas=2, grpc_port=0)
)
"""Two frontends share one replica."""
APART = replace(application("apart").model("only"), slo_ms=3_000).with_spec(frontend=SHARED.session.spec.frontend)
"""One of its outputs is known seconds before the other one."""
EARLY = replace(application("early").model("quick").model("slow", beta_micros=3_000_000), slo_ms=20_000)
"""One of its outputs is known seconds before the other one."""
_LYING = application("lying").slo(600).deferred().with_spec(autoscaling=Autoscaling(window_seconds=2))
LYING = _LYING.model("only", alpha_micros=5_000, beta_micros=45_000)
"""Its profile has a third of the replica's actual time, which LYING_AS_IT_IS has."""
LYING_AS_IT_IS = _LYING.model("only", alpha_micros=15_000, beta_micros=135_000)
