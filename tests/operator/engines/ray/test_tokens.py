"""Each dashboard gets its own token, and no other one gets the operator's."""

from tests.operator.engines.dashboard_double import DashboardDouble
from tests.runtime.serving.plans import application

from partita_api.inferencesession import InferenceSession
from partita_operator.engines.ray.clusters import RayClusters
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.ray import RayClusterSettings, RaySettings


def session(cluster: str | None) -> InferenceSession:
    return application("traffic").model("a").with_spec(engine={"cluster": cluster} if cluster else {}).session


async def test_each_cluster_gets_its_own_token() -> None:
    with DashboardDouble() as default, DashboardDouble() as other, DashboardDouble() as open_to_all:
        named = (
            RayClusterSettings(name="other", address=other.url, namespaces=("default",)),
            RayClusterSettings(name="open", address=open_to_all.url, namespaces=("*",)),
        )
        ray = RaySettings(address=f"{default.url}/", token="secret", clusters=named, tokens={"other": "theirs"})
        clusters = RayClusters(OperatorSettings(ray=ray))

        assert tuple(clusters.of(session(name)) for name in (None, "other", "open")) == clusters.all()
        for engine in clusters.all():
            await engine.sessions()
        await clusters.close()

    sent = [dashboard.authorizations for dashboard in (default, other, open_to_all)]
    assert sent == [{"Bearer secret"}, {"Bearer theirs"}, {None}]
