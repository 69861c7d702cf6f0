"""Pages on sessions of a cluster: their commands, pasted while an operator runs on a real API server."""

import asyncio
import re
import shutil

import pytest
from tests.architecture.sources import ROOT
from tests.docs.pages import blocks, pasted, write_files
from tests.docs.shell import Shell
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, session
from tests.runtime.models.onnx_files import packaged

from partita_api.manifests import parse_manifests

pytestmark = pytest.mark.apiserver

README, FIRST_SESSION = "README.md", "docs/get-started/first-session.md"
PLAN_CHANGES, TROUBLESHOOTING = "docs/concepts/plan-changes.md", "docs/troubleshooting.md"
ELASTIC = "docs/tasks/elastic.md"
APPROVAL, SCALE_TO_ZERO = "docs/tasks/approval.md", "docs/tasks/scale-to-zero.md"
MONITORING, QUOTAS, MODELS = "docs/tasks/monitoring.md", "docs/tasks/quotas.md", "docs/tasks/models.md"
TRAFFIC, FAQ, MPS = "examples/traffic/README.md", "docs/faq.md", "docs/tasks/mps.md"
WHAT_IF, CLI, PLAN = "docs/tasks/what-if.md", "docs/reference/cli.md", "docs/reference/cli-plan.md"
MANUAL = {"planner": {"approval": "Manual"}}


async def paste(reader: Shell, commands: str) -> str:
    """The operator runs on this event loop, which a command must not stop."""
    return await asyncio.to_thread(reader.paste, commands)


async def until(namespace: Kubectl, name: str, type: str, why: str) -> None:
    await eventually(lambda: namespace.get("isess", name), lambda found: condition(found, type).get("reason") == why)


async def test_an_elastic_pool_without_nodes(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    growing = pool("l4", count=None, elastic={"maxCount": 16})
    del growing["spec"]["emulation"]
    namespace.apply(growing)
    (look,) = pasted(ELASTIC)

    async with operators.running():
        await eventually(lambda: namespace.get("gpool", "l4"), lambda found: condition(found, "Provisioned") != {})
        shown = await paste(reader, look)
    assert '"maxCount":16' in shown
    assert "Partita may use 16 accelerators, of which 0 are present." in shown
    namespace("delete", "gpool", "l4", "--wait=false")


async def test_a_first_session(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    """Without GPUs, as the page says."""
    write_files(FIRST_SESSION, reader.folder)
    manifest = next(block.text for block in blocks(FIRST_SESSION) if block.language == "yaml")
    gpus = "nodeSelector: {matchLabels: {nvidia.com/gpu.product: Tesla-T4}}"
    assert gpus in manifest
    manifest = manifest.replace(gpus, "count: 2\n  sharing: {mode: CPU}")
    (reader.folder / "shop.yaml").write_text(
        manifest.replace("namespace: default", f"namespace: {namespace.namespace}")
    )
    apply, without_a_cluster = pasted(FIRST_SESSION)

    async with operators.running():
        shown = await paste(reader, apply)
    assert "isess" in shown or "inferencesession" in shown
    assert f"/{namespace.namespace}/shop" in shown, "the session's URL"
    await paste(reader, without_a_cluster)


async def test_the_session_of_the_readme(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    (manifest,) = [block.text for block in blocks(README) if block.language == "yaml"]
    look, _install = pasted(README)
    namespace.apply(pool("fast", count=16))
    (reader.folder / "traffic.yaml").write_text(manifest)

    async with operators.running():
        await paste(reader, "kubectl apply -f traffic.yaml")
        await until(namespace, "traffic", "Ready", "Serving")
        shown = await paste(reader, look.replace("partita top ", "partita top --once "))
    assert "traffic" in shown


async def test_the_example(reader: Shell, operators: Operators) -> None:
    apply, curl = pasted(TRAFFIC)
    (url,) = re.findall(r"\$\((kubectl .+?)\)", curl)
    (reader.folder / "examples").symlink_to(ROOT / "examples")

    async with operators.running():
        await paste(reader, apply)
        assert (await paste(reader, url)).endswith("/traffic")


async def test_plan_changes(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    (block,) = pasted(PLAN_CHANGES)
    approve, pause, resume, rollback, explain = block.splitlines()
    namespace.apply(pool("fast", count=16), session("traffic", **MANUAL))

    async with operators.running():
        await until(namespace, "traffic", "Held", "AwaitingApproval")
        await paste(reader, approve)
        await until(namespace, "traffic", "Ready", "Serving")
        await paste(reader, pause)
        namespace.apply(session("traffic", rate={"requestsPerSecond": 2000}, **MANUAL))
        await until(namespace, "traffic", "Held", "Paused")
        await paste(reader, resume)
        await until(namespace, "traffic", "Held", "AwaitingApproval")
        await paste(reader, approve)
        await until(namespace, "traffic", "Ready", "Serving")
        await paste(reader, rollback)
        await until(namespace, "traffic", "Held", "RolledBack")
        assert "Current plan: traffic-" in await paste(reader, explain)


async def test_troubleshooting(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    look, retry = pasted(TROUBLESHOOTING)
    *shown, doctor = look.splitlines()
    namespace.apply(pool("fast"), session("shop"))

    async with operators.running():
        await until(namespace, "shop", "Ready", "Serving")
        assert "Serving" in await paste(reader, "\n".join(shown))
        assert doctor == "partita doctor"
        assert "CRD" in (await asyncio.to_thread(reader.run, doctor)).stdout
        await paste(reader, retry)
        await until(namespace, "shop", "Ready", "Serving")


async def test_approval_and_rollback(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    approval, rate, preview, approve, pause, window, rollback = pasted(APPROVAL)
    back, undo = rollback.splitlines()
    namespace.apply(pool("fast", count=16), session("traffic"))

    async with operators.running():
        await until(namespace, "traffic", "Ready", "Serving")
        await paste(reader, approval)
        await paste(reader, rate.replace("240", "2400"))  # one GPU of this pool has 1000
        await until(namespace, "traffic", "Held", "AwaitingApproval")
        assert "currentCostPerHour" in await paste(reader, preview)
        await paste(reader, approve)
        await until(namespace, "traffic", "Ready", "Serving")
        await paste(reader, pause)
        await paste(reader, window)
        assert (namespace.get("isess", "traffic") or {})["spec"]["maintenanceWindows"][0]["start"] == "22:30"
        await paste(reader, back)
        await until(namespace, "traffic", "Held", "RolledBack")
        await paste(reader, undo)


async def test_looking_at_sessions_and_pools(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    switch_on, switch_off, state, _simulate = pasted(SCALE_TO_ZERO)
    look, _logs = pasted(MONITORING)
    (quotas,), (why,), (fractions,) = pasted(QUOTAS), pasted(FAQ), pasted(MPS)
    _profiles, save, *_, plan = pasted(WHAT_IF)
    get_plan, _diff = pasted(PLAN)[-1].splitlines()
    namespace.apply(
        pool("fast"), pool("t4", quotas=[{"namespace": namespace.namespace, "gpus": 4}]), session("traffic")
    )

    async with operators.running():
        await until(namespace, "traffic", "Ready", "Serving")
        await paste(reader, switch_on)
        assert (namespace.get("isess", "traffic") or {})["spec"]["autoscaling"]["scaleToZero"]["afterSeconds"] == 900
        await paste(reader, switch_off)
        assert "scaleToZero" not in (namespace.get("isess", "traffic") or {})["spec"]["autoscaling"]
        await paste(reader, state)
        assert "traffic" in await paste(reader, look)
        assert namespace.namespace in await paste(reader, quotas)
        assert "Current plan: traffic-" in await paste(reader, why)
        assert (await paste(reader, fractions)).endswith("1")
        assert "requests/s" in await paste(reader, plan)
        (current,) = namespace.list("pipelineplan")
        await paste(reader, get_plan.replace("traffic-1a2b3c4d", current["metadata"]["name"]))
        assert len(parse_manifests((reader.folder / "plan.yaml").read_text(), "plan.yaml").plans) == 1
        await paste(reader, save)
        assert [*(reader.folder / "cluster-profiles").glob("*.json")]


async def test_a_model_and_secrets_of_images(reader: Shell, namespace: Kubectl) -> None:
    inspect, command = pasted(MODELS)
    shutil.copy(packaged("PP-OCRv6_rec_small"), reader.folder / "model.onnx")
    assert "outputs: fetch_name_0: FP32 [40, 18710]" in await paste(reader, inspect)
    (written,) = parse_manifests((reader.folder / "session.yaml").read_text(), "session.yaml").sessions
    assert written.metadata.name == "model"
    in_default = "-n default"
    assert in_default in command
    await eventually(lambda: namespace.get("serviceaccount", "default"), lambda found: found is not None)

    await paste(reader, command.replace(in_default, f"-n {namespace.namespace}"))
    account = namespace.get("serviceaccount", "default")
    assert account is not None
    assert account["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on PATH: apt-get install jq")
async def test_output_for_other_programs(reader: Shell, namespace: Kubectl, operators: Operators) -> None:
    block, _completion = pasted(CLI)
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await until(namespace, "traffic", "Ready", "Serving")
        assert '"sloMs": 200' in await paste(reader, block)
