"""Each dashboard gets its own token, and no other address gets the operator's."""

from tests.operator.engines.dashboard_double import DashboardDouble
from tests.runtime.serving.plans import application

from partita_api.inferencesession import InferenceSession
from partita_operator.engines.ray.engine import RayServeEngines
from partita_operator.settings.model import OperatorSettings, RaySettings


def session(address: str | None) -> InferenceSession:
    return application("traffic").model("a").with_spec(engine={"address": address}).session


async def test_a_sessions_own_engine_never_gets_the_operators_token() -> None:
    with DashboardDouble() as default, DashboardDouble() as other, DashboardDouble() as unknown:
        ray = RaySettings(address=f"{default.url}/", token="secret", tokens={f"{other.url}/": "theirs"})
        engines = RayServeEngines(OperatorSettings(ray=ray))
        made = tuple(engines.of(session(address)) for address in (None, other.url, unknown.url))

        assert engines.of(session(default.url)) is made[0]
        assert engines.of(session(f"{other.url}/")) is made[1]
        assert engines.known() == made
        for engine in made:
            await engine.sessions()
        await engines.close()

    sent = [dashboard.authorizations for dashboard in (default, other, unknown)]
    assert sent == [{"Bearer secret"}, {"Bearer theirs"}, {None}]
