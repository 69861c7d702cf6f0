"""`partita local apply`, `delete` and `url`: results for programs, and what they say when Ray or the operator end."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.builders import pool, session
from tests.devtools.conftest import RAY_STATE, process_of
from tests.devtools.local.conftest import Command
from tests.patience import PATIENCE_SECONDS, eventually

from partita_devtools.local.environment import up_command
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.resources import SessionResource


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    documents = (pool("cpu").gpus(2).build(), session("shop").slo(200).rate(50).model("detector").build())
    path = tmp_path / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(d.model_dump(mode="json", by_alias=True, exclude={"status"}) for d in documents))
    return path


def test_results_for_programs(local: Command, running: Path, manifests: Path) -> None:
    applied = local("apply", "-f", str(manifests), "--no-wait", "-o", "json")
    assert json.loads(applied.stdout) == [
        {"kind": "GPUPool", "name": "cpu", "state": "applied"},
        {"kind": "InferenceSession", "name": "shop", "namespace": "default", "state": "applied", "url": None},
    ]
    asyncio.run(serve_at(running / "kubeconfig", "http://127.0.0.1:1/default/shop"))
    url = local("url", "isess/shop", "-o", "json")
    assert json.loads(url.stdout) == {"name": "shop", "namespace": "default", "url": "http://127.0.0.1:1/default/shop"}
    assert local("url", "shop").stdout == "http://127.0.0.1:1/default/shop\n"
    deleted = local("delete", "isess/shop", "gpool/gone", "-o", "yaml")
    assert yaml.safe_load(deleted.stdout) == [
        {"kind": "InferenceSession", "name": "shop", "namespace": "default", "state": "deleted"},
        {"kind": "GPUPool", "name": "gone", "state": "missing"},
    ]


async def serve_at(kubeconfig: Path, url: str) -> None:
    async with KubernetesClient(await load_config(kubeconfig)) as client:
        await client.apply_status(
            SessionResource, {"metadata": {"name": "shop", "namespace": "default"}, "status": {"url": url}}
        )


def test_without_ray_nothing_is_applied(local: Command, running: Path, manifests: Path) -> None:
    with process_of(running, "ray") as ray:
        ray.kill()
    refused = local("apply", "-f", str(manifests))
    assert refused.exit_code == ExitCode.FAILED
    assert refused.output.splitlines() == [
        f"Error: Ray does not run in {running}; start it: partita local up --state-dir {running}"
    ]
    assert "no inferencesessions" in local("get", "isess").output


@pytest.mark.parametrize(("ends", "want"), [("ray", "Ray node head"), ("operator", "the operator")])
def test_a_wait_ends_when_what_it_waits_for_has_ended(ends: str, want: str, running: Path, manifests: Path) -> None:
    command = [sys.executable, "-m", "partita_operator", "local", "apply", "-f", str(manifests)]
    with (
        process_of(running, "ray") as ray,
        process_of(running, "operator") as operator,
        subprocess.Popen([*command, "--state-dir", str(running)], stderr=subprocess.PIPE, text=True) as apply,
    ):
        stored = running / "objects/inferencesessions/default/shop.yaml"
        eventually(lambda: stored.exists() or apply.poll() is not None)
        assert apply.poll() is None, apply.communicate()
        {"ray": ray, "operator": operator}[ends].send_signal(signal.SIGKILL)
        _, errors = apply.communicate(timeout=PATIENCE_SECONDS)
    assert apply.returncode == ExitCode.FAILED
    *_, first, last = errors.splitlines()
    assert first.startswith(f"Error: {want} ended; the end of its log {running}/logs/")
    assert last == f"To start again: partita local up --state-dir {running}"


def test_the_command_that_starts_again_has_the_folders_of_the_models(running: Path) -> None:
    folders = ["/my models", os.getcwd(), "/other"]
    config = {**RAY_STATE["config"], "environment": {"PYTHONPATH": os.pathsep.join(folders)}}
    (running / "ray-cluster.json").write_text(json.dumps({**RAY_STATE, "config": config}))
    assert shlex.split(up_command(running))[3:-2] == ["--python-path", "/my models", "--python-path", "/other"]
