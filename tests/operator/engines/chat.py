"""A Serve application that does not belong to Partita."""

from ray import serve


class Chat:
    """Answers."""

    async def __call__(self) -> str:
        return "hello"


application = serve.deployment(ray_actor_options={"num_cpus": 0.1})(Chat).bind()
