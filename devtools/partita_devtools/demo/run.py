"""The demonstration from start to end: apply, wait, compare, send load, observe."""

import asyncio
import os
import platform
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from partita_devtools.definitions import apply_definitions
from partita_devtools.demo.config import DemoConfig
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example, read_example, samples
from partita_devtools.demo.machine import affordable_rate
from partita_devtools.demo.pictures import read_pictures
from partita_devtools.demo.possible_slo import possible_slo_ms
from partita_devtools.demo.result import DemoResult, Verification
from partita_devtools.demo.simulation import simulate_plan
from partita_devtools.demo.traffic import SessionEndpoint, first_answer, send_phases
from partita_devtools.demo.verification import Reference, ask, reference, verify
from partita_devtools.environment import DevEnvironment
from partita_devtools.machine.commands import Report
from partita_devtools.operator_process import operator_log
from partita_devtools.sessions.liveness import while_running
from partita_devtools.sessions.objects import apply_manifests, manifest_client
from partita_devtools.sessions.watch import SessionStalledError, SessionWatch
from partita_operator.engines.monitoring_tokens import KeptMonitoringTokens
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.kube.errors import ApiError, ApiUnreachableError
from partita_operator.kube.profiles import list_profiles
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.settings.model import OperatorSettings
from partita_runtime.serving.protocol.inference_client import Payload, encode_request

T = TypeVar("T")


def run_demo(environment: DevEnvironment, config: DemoConfig, report: Report) -> DemoResult:
    """Demonstrate the example in an environment with an operator.

    `report` receives a line for every step and every change of a condition. The objects stay. Raises DemoError, and
    DevError if the CRDs cannot be installed or a program of the environment ends meanwhile.
    """
    example = read_example(config.example, config.namespace)

    def demonstrate(client: KubernetesClient) -> Awaitable[DemoResult]:
        work = _demonstrate(client, example, environment, config, report)
        return while_running(work, environment, config.command)

    return asyncio.run(_with_client(environment, demonstrate))


async def _demonstrate(
    client: KubernetesClient, example: Example, environment: DevEnvironment, config: DemoConfig, report: Report
) -> DemoResult:
    name = example.session.metadata.name
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    expected = await _reference(example, config, report)
    example = example.at_rate(_rate(example, config, expected, report))
    await apply_definitions(client, environment.kubeconfig)
    report(f"applying {len(example.pools)} pools and session {name} from {example.directory}")
    await apply_manifests(client, example.pools, [example.session])
    watch = SessionWatch(client, example.session, example.pools, report, environment.ray.serve_url)
    advice = _advice(example, environment)
    try:
        found = await watch.until_serving(config.ready_timeout_s, advice)
    except SessionStalledError:
        slower = await _within_possible_slo(client, example, config, report)
        if slower is None:
            raise
        await apply_manifests(client, [], [slower.session])
        found = await watch.until_serving(config.ready_timeout_s, advice)
    ready_after_s = watch.elapsed()
    assert found.session.status.url is not None  # it serves
    tokens = KeptMonitoringTokens(client, OperatorSettings().own_namespace)
    endpoint = SessionEndpoint(found.session.status.url, name, await tokens.of(found.session.namespace))
    payloads = _payloads(example, config)
    await first_answer(endpoint, payloads[0])
    first_answer_after_s = time.monotonic() - config.started
    report(
        f"{name} serves at {endpoint.base_url}, {ready_after_s:.0f} s after the manifests; "
        f"the first request is answered {first_answer_after_s:.0f} s after the start of this command"
    )

    pictures = await read_pictures(endpoint, example, report)
    verification = await _verification(endpoint, example, expected, watch, report)
    load_after_s = watch.elapsed()
    phases, looks = await send_phases(
        endpoint, found.session, config.phases, payloads, seed=config.seed, look=watch.look, report=report
    )

    found = await watch.look()
    plan = found.current_plan
    if plan is None:
        raise DemoError(f"session {name} has no plan any more; see its conditions above")
    report("simulating the plan at other loads")
    profiles = await list_profiles(client, str(example.session.metadata.namespace))
    simulated = await asyncio.to_thread(simulate_plan, example.session, plan.spec, found.pools, profiles, config.seed)
    return DemoResult(
        started_at=started_at,
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores",
        example=str(config.example),
        emulated=example.is_emulated,
        session=found.session,
        plan=plan,
        pools=found.pools,
        first_answer_after_s=first_answer_after_s,
        ready_after_s=ready_after_s,
        load_after_s=load_after_s,
        timeline=tuple(watch.timeline),
        phases=phases,
        samples=looks,
        verification=verification,
        simulated=simulated,
        pictures=pictures,
    )


def _payloads(example: Example, config: DemoConfig) -> Sequence[Payload]:
    inputs = samples(example, config.payloads, config.seed)
    return [
        encode_request({name: tensor[i : i + 1] for name, tensor in inputs.items()}) for i in range(config.payloads)
    ]


def _advice(example: Example, environment: DevEnvironment) -> str:
    """Where to find out more about the session."""
    session, cluster = example.session.metadata, ["--kubeconfig", str(environment.kubeconfig)]
    command = shlex.join(["partita", "explain", session.name, "-n", str(session.namespace), *cluster])
    return f"More: {command}\nThe operator's log: {operator_log(environment.state_dir)}"


async def _reference(example: Example, config: DemoConfig, report: Report) -> Reference | None:
    if example.is_emulated or config.verified_requests == 0:
        return None
    report(f"running the whole models on {config.verified_requests} requests, to compare answers later")
    return await asyncio.to_thread(reference, example, samples(example, config.verified_requests, config.seed + 1))


def _rate(example: Example, config: DemoConfig, expected: Reference | None, report: Report) -> int:
    """The rate that the session declares."""
    declared = example.session.spec.rate.requests_per_second
    if config.rate is not None:
        return config.rate
    if config.machine is None or expected is None:
        return declared
    rate = affordable_rate(declared, config.machine, expected.seconds)
    report(
        f"{config.machine.free_cores:.1f} of {config.machine.cores} cores are free, and the models need "
        f"{1000 * expected.seconds:.0f} ms of CPU time for a request: the session declares {rate} requests/s"
        + ("" if rate == declared else f" instead of {declared}")
    )
    return rate


async def _within_possible_slo(
    client: KubernetesClient, example: Example, config: DemoConfig, report: Report
) -> Example | None:
    """The example with an SLO that this machine can keep by the profiles; None if its SLO is not what is wrong."""
    if config.machine is None:
        return None
    profiles = await list_profiles(client, str(example.session.metadata.namespace))
    millis = await asyncio.to_thread(possible_slo_ms, example.session, example.pools, profiles)
    if millis is None:
        return None
    declared = example.session.spec.slo.latency_ms
    report(f"this machine is too slow for the SLO: the session declares {millis} ms instead of {declared}")
    return example.within_slo(millis)


async def _verification(
    endpoint: SessionEndpoint, example: Example, expected: Reference | None, watch: SessionWatch, report: Report
) -> Verification | None:
    if expected is None:
        return None
    report(f"comparing {len(expected.answers)} answers with those of the whole models")
    before = (await watch.look()).current_plan
    given = await ask(endpoint, expected)
    after = (await watch.look()).current_plan
    plans = {plan.metadata.name: plan.spec for plan in (before, after) if plan is not None}
    found = await asyncio.to_thread(verify, example, given, expected, [*plans.values()])
    for difference in found.differences:
        report(f"warning: {difference}")
    return found


async def _with_client(environment: DevEnvironment, work: Callable[[KubernetesClient], Awaitable[T]]) -> T:
    try:
        async with manifest_client(await load_config(environment.kubeconfig)) as client:
            return await work(client)
    except ApiError as error:
        raise DemoError(f"the API server refuses: {error.message}") from error
    except (NoClusterError, ApiServerUnavailableError, ApiUnreachableError) as error:
        status = shlex.join(["partita", "dev", "status", "--state-dir", str(environment.state_dir)])
        raise DemoError(f"{error} Check that the development environment runs: {status}") from error
