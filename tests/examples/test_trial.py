"""The trial: its manifests are accepted, agree with each other, and its session can be planned and keeps its SLO."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.operator.kubectl import Kubectl

from partita_api.manifests import Manifests, parse_manifests
from partita_operator.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TRIAL = ROOT / "examples" / "trial" / "trial.yaml"
VALUES: dict[str, Any] = yaml.safe_load((TRIAL.parent / "values.yaml").read_text())
DOCUMENTS: dict[str, dict[str, Any]] = {
    f"{document['kind']}/{document['metadata']['name']}": document for document in yaml.safe_load_all(TRIAL.read_text())
}


def container(of: str) -> dict[str, Any]:
    (found,) = DOCUMENTS[of]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return parse_manifests(TRIAL.read_text(), str(TRIAL))


def option(words: list[str], name: str) -> str:
    (found,) = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found


def test_values_are_valid_and_name_the_ray_cluster() -> None:
    jsonschema.validate(VALUES, json.loads((ROOT / "charts/partita/values.schema.json").read_text()))
    service = DOCUMENTS["Service/ray-head"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    host = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert VALUES["ray"] == {
        "address": f"{host}:{ports['dashboard']}",
        "serveUrl": f"{host}:{ports['serve']}",
    }


def test_all_pods_have_one_image() -> None:
    image = "{repository}:{tag}".format(**VALUES["image"])
    assert {container("Deployment/ray-head")["image"], container("Job/load")["image"]} == {image}


def test_ray_has_the_accelerators_of_the_pools(manifests: Manifests) -> None:
    resources = json.loads(option(container("Deployment/ray-head")["command"], "--resources"))
    assert resources == {f"partita-pool-{pool.metadata.name}": pool.spec.count for pool in manifests.pools}


def test_the_load_is_the_one_that_the_session_declares(manifests: Manifests) -> None:
    (session,) = manifests.sessions
    command, url, *options = container("Job/load")["args"]

    assert command == "load"
    assert url.endswith(f"/{session.metadata.namespace}/{session.metadata.name}")
    assert int(option(options, "--rate")) == session.spec.rate.requests_per_second
    assert int(option(options, "--slo-ms")) == session.spec.slo.latency_ms


def partita(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profiles of its models."""
    directory = tmp_path_factory.mktemp("trial")
    for name, text in DOCUMENTS["ConfigMap/models"]["data"].items():
        (directory / name).write_text(text)
    done = partita("profile", TRIAL, "--python-path", directory, "--out", directory / "profiles")
    assert done.exit_code == 0, done.output
    return directory / "profiles"


@pytest.mark.parametrize("rate", ["20", "60"])
def test_its_session_has_a_plan_that_keeps_the_slo(rate: str, profiles: Path) -> None:
    simulated = partita("simulate", TRIAL, "--profiles", profiles, "--rate", rate, "--seconds", "30")
    assert simulated.exit_code == 0, simulated.output


@pytest.mark.apiserver
def test_an_api_server_takes_all_of_it(cluster: Kubectl) -> None:
    namespace = DOCUMENTS["Namespace/partita-trial"]
    cluster.apply(namespace)
    cluster.paste(f"kubectl apply --dry-run=server -f {TRIAL}")
    cluster("delete", "namespace", namespace["metadata"]["name"], "--wait=false")
