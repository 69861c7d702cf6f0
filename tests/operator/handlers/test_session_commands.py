"""`partita` as a kubectl plugin: requests for a session on a real API server, and their effects."""

import asyncio
import json
import shlex

import pytest
from click.testing import CliRunner, Result
from tests.operator.doubles import made_profile
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, condition, eventually, pool, reason, session

from partita_api.profile import Profile, ProfileRequest
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

pytestmark = pytest.mark.apiserver

FAST = {"planner": {"approval": "Manual"}}


async def partita(namespace: Kubectl, command: str, *arguments: str) -> Result:
    """Run the command in the test's namespace, in another process: the operator runs in this thread."""
    place = ["--kubeconfig", str(namespace.kubeconfig), "--namespace", namespace.namespace]
    return await asyncio.to_thread(CliRunner().invoke, main, [command, *arguments, *place])


async def done(namespace: Kubectl, command: str, *arguments: str) -> str:
    result = await partita(namespace, command, *arguments)
    assert result.exit_code == ExitCode.OK, result.output
    return result.stdout


async def pasted(told: Result, introduction: str) -> None:
    """Run the command that the output of another one proposes after these words."""
    program, *arguments = shlex.split(told.output.partition(introduction)[2])
    assert program == "partita"
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert result.exit_code == ExitCode.OK, result.output


async def until_held(namespace: Kubectl, why: str) -> Json:
    found = await eventually(
        lambda: namespace.get("isess", "traffic"), lambda s: condition(s, "Held").get("reason") == why
    )
    assert found is not None
    return found


async def until_served(namespace: Kubectl, plan: str) -> None:
    await eventually(
        lambda: namespace.get("isess", "traffic"),
        lambda s: reason(s) == ("True", "Serving") and s["status"]["currentPlan"]["name"] == plan,  # type: ignore[index]
    )


async def test_plans_are_previewed_approved_held_and_rolled_back(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast", count=16), session("traffic", **FAST))

    async with operators.running():
        first = (await until_held(namespace, "AwaitingApproval"))["status"]["preview"]["plan"]
        wrong = await partita(namespace, "approve", "isess/traffic", "--plan", "traffic-00000000")
        assert wrong.exit_code == ExitCode.FAILED
        assert f"the pending plan is {first}" in wrong.output
        await done(namespace, "approve", "isess/traffic")
        await until_served(namespace, first)

        pausing = await partita(namespace, "pause", "traffic", "--why", "load test")
        namespace.apply(session("traffic", rate={"requestsPerSecond": 2000}, **FAST))
        paused = await until_held(namespace, "Paused")
        assert "load test" in condition(paused, "Held")["message"]
        await pasted(pausing, "to resume: ")
        await until_held(namespace, "AwaitingApproval")
        told = json.loads(await done(namespace, "explain", "isess/traffic", "-o", "json"))
        assert told["plan"]["inputsDigest"].startswith(first.removeprefix("traffic-"))
        assert float(told["preview"]["costPerHour"]) > float(told["preview"]["currentCostPerHour"])
        assert "accelerators" in await done(namespace, "approve", "isess/traffic")
        second = told["preview"]["plan"]
        await until_served(namespace, second)

        returning = await partita(namespace, "rollback", "isess/traffic")
        await until_held(namespace, "RolledBack")
        await until_served(namespace, first)
        assert f"Current plan: {first}" in await done(namespace, "explain", "isess/traffic")
        await pasted(returning, "to undo it: ")
        await until_served(namespace, second)

        asked = json.loads(await done(namespace, "plan", "isess/traffic", "--rate", "50", "-o", "json"))
        assert ["pool fast", "accelerators"] in [[c["where"], c["what"]] for c in asked["changes"]]
        assert (namespace.get("isess", "traffic") or {})["spec"]["rate"]["requestsPerSecond"] == 2000


async def test_models_are_profiled_again_on_request(namespace: Kubectl, operators: Operators) -> None:
    def make(request: ProfileRequest) -> Profile:
        return made_profile(request).model_copy(update={"content": content})

    content, operators.runner.make = "a" * 64, make
    namespace.apply(pool("fast", count=16), session("traffic"))
    async with operators.running():
        before = await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        wrong = await partita(namespace, "reprofile", "isess/traffic", "--module", "other")
        assert wrong.exit_code == ExitCode.BAD_INPUT
        assert "no module other with a model; its modules with a model are: detector" in " ".join(wrong.output.split())
        content = "b" * 64
        told = json.loads(await done(namespace, "reprofile", "isess/traffic", "-o", "json"))
        assert (told["pools"], len(told["deletedProfiles"])) == (["fast"], 1)
        after = await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: (
                reason(s) == ("True", "Serving") and s["status"]["currentPlan"] != before["status"]["currentPlan"]
            ),
        )
        plan = namespace.get("pplan", after["status"]["currentPlan"]["name"])
        assert plan is not None
        assert [ref["content"] for ref in plan["spec"]["profiles"]] == [content]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["reprofile", "isess/nobody"], "its sessions are: none", id="unknown session to profile"),
        pytest.param(["explain", "isess/nobody"], "its sessions are: none", id="unknown session"),
        pytest.param(["plan", "isess/nobody"], "its sessions are: none", id="unknown session to plan"),
        pytest.param(["pause", "x", "--context", "elsewhere"], "elsewhere", id="unknown context"),
        pytest.param(["pause", "x", "--why", "false"], "give a reason", id="a pause without effect"),
        pytest.param(
            ["plan", "isess/x", "--out", "f"], "allows only --rate", id="manifests together with a session of a cluster"
        ),
    ],
)
async def test_wrong_requests_are_explained(namespace: Kubectl, arguments: list[str], want: str) -> None:
    result = await partita(namespace, *arguments)
    assert result.exit_code in (ExitCode.FAILED, ExitCode.BAD_INPUT)
    assert want in result.output
