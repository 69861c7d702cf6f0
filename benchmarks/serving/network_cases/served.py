"""Frontends in this process that share replicas on slow nodes, each with settings of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.serving.network_cases.nodes import Node
from benchmarks.serving.serving_cases.emulated import MODULE, POOL, EmulatedSession
from tests.runtime.serving.in_process.stand import LocalDirectory, on_its_own_port, until
from tests.runtime.serving.replica.replica_process import replica_process

from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.epochs import epoch
from partita_runtime.serving.deploy.stage_arguments import StageArguments, stage_build
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

_PIPELINE = "p0"


@contextlib.asynccontextmanager
async def frontends(
    app: EmulatedSession, settings: Mapping[str, FrontendSettings], nodes: Sequence[Node]
) -> AsyncIterator[dict[str, str]]:
    """Frontends by name, each of a session of its own; yields their URLs. Stage by stage, replicas fill the nodes."""
    directory = LocalDirectory()
    async with contextlib.AsyncExitStack() as stack:
        all_arguments = stage_arguments(app)
        places = [nodes[number // app.gpus_per_node] for number in range(len(all_arguments))]
        starting = [
            stack.enter_async_context(replica_process(arguments, node.address, within=node.within))
            for arguments, node in zip(all_arguments, places, strict=True)
        ]
        processes = await asyncio.gather(*starting)
        for number, (arguments, node, process) in enumerate(zip(all_arguments, places, processes, strict=True)):
            for name in settings:
                directory.announce(
                    Announcement(
                        replica=f"{name}-{number}",
                        session_key=replace(app, name=name).key,
                        plan=arguments.plan,
                        module=MODULE,
                        pipeline=_PIPELINE,
                        stage=arguments.stage,
                        node=node.name,
                        address=process.address,
                        profile=arguments.profile,
                    )
                )
        urls = {}
        for name, of_frontend in settings.items():
            named = replace(app, name=name)
            session = Session(named.key, of_frontend, directory)
            stack.callback(session.close)
            session.start()
            session.reconfigure(
                epoch(named.session, app.plan, app.profiles, {POOL: float(app.pools[POOL].spec.bandwidth)})
            )
            address = await stack.enter_async_context(on_its_own_port(session))
            urls[name] = f"http://{address}/v2/models/{name}/infer"
            await until(lambda session=session: ready(session) == app.gpus * app.stages, "all replicas have joined")
        yield urls


def ready(session: Session) -> int:
    """How many replicas take batches."""
    return sum(stage.ready for stage in session.signals().stages)


def stage_arguments(app: EmulatedSession) -> list[StageArguments]:
    """The arguments of every replica, stage by stage."""
    (module,) = app.plan.spec.modules
    (pipeline,) = module.pipelines
    return [
        StageArguments(
            session_key=app.key,
            plan=str(app.plan.metadata.name),
            module=MODULE,
            pipeline=_PIPELINE,
            stage=number,
            pool=POOL,
            profile="of-a-benchmark",
            build=stage_build(
                app.session.spec, MODULE, stage, pipeline.batch_size, app.profiles[MODULE, POOL], app.pools[POOL]
            ),
        )
        for number, stage in enumerate(pipeline.stages)
        for _ in range(stage.replicas)
    ]
