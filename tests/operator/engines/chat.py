"""Somebody else's Serve application."""

from ray import serve


@serve.deployment
class Chat:
    """Answers."""

    async def __call__(self) -> str:
        return "hello"


application = Chat.options(ray_actor_options={"num_cpus": 0.1}).bind()
