"""The operator's config file as the chart renders it: the same settings as in the values, and the same defaults."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.chart.charts import CHART, EVERYTHING, config_file, pod, rendered

from partita_operator.settings.fields import all_settings
from partita_operator.settings.json_schema import chart_values_schema
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.loading import load_settings
from partita_operator.settings.mig import MigSettings
from partita_operator.settings.model import LeaderElectionSettings, OperatorSettings
from partita_runtime.models.policy import ModelPolicy

BOTH = pytest.mark.parametrize("values", [None, EVERYTHING], ids=["defaults", "everything set"])


def settings_of(values: dict[str, Any] | None, directory: Path) -> OperatorSettings:
    """The settings of an operator that the chart has installed with these values."""
    path = directory / "config.yaml"
    path.write_text(config_file(values))
    return load_settings({}, path)


def is_at(values: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether nested objects have a value at a path."""
    found: Any = values
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


@BOTH
def test_the_operator_reads_the_mounted_config_file(values: dict[str, Any] | None, tmp_path: Path) -> None:
    spec = pod(values)
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (name,) = [volume for volume, found in volumes.items() if "configMap" in found]
    assert volumes[name]["configMap"]["name"] == "partita-config"
    assert container["command"][-2:] == ["operator", "run"]
    assert container["args"] == [f"--config={mounts[name]}/config.yaml"]
    settings = settings_of(values, tmp_path)
    given = values or {}
    assert settings.ray.address == "http://ray-head-svc.ray.svc:8265"
    assert settings.ray.runtime_env == given.get("ray", {}).get("runtimeEnv", {})
    assert settings.default_engine == given.get("defaultEngine", "Ray")
    assert settings.transport == given.get("transport", "Streams")
    assert settings.profiling.image == given.get("profiling", {}).get("image", "")
    assert settings.kuberay.image == given.get("kuberay", {}).get("image", "")
    assert settings.namespaces == ("default",)


def test_the_defaults_of_the_values_are_those_of_the_operator(tmp_path: Path) -> None:
    lease = LeaderElectionSettings(namespace="partita-system", name="partita")
    assert settings_of({"scope": "Cluster"}, tmp_path) == OperatorSettings(leader_election=lease)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for setting in all_settings():
        value = defaults
        for key in setting.keys if setting.in_chart else setting.key.split(".")[:1]:
            assert key in value, f"values.yaml lacks {setting.key}"
            value = value[key]


def test_the_config_file_has_every_setting_and_no_secret() -> None:
    given = yaml.safe_load(config_file(EVERYTHING))
    want = {setting.keys for setting in all_settings() if setting.in_chart}
    lease = {("leaderElection", "namespace"), ("leaderElection", "name")}
    assert {keys for setting in all_settings() if is_at(given, keys := setting.keys)} == want | lease
    text = config_file(EVERYTHING).lower()
    for name_of_secret in ("authsecret", "redissecret", "pullsecrets", "allowedsecrets", "tlssecret"):
        text = text.replace(name_of_secret, "")
    assert "secret" not in text


def test_a_change_of_settings_restarts_the_pods() -> None:
    def checksum(values: dict[str, Any] | None) -> str:
        template = rendered(values)["Deployment", "partita"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum(None) != checksum({"resyncSeconds": 6})
    assert checksum(None) == checksum({"replicas": 3, "metrics": {"dashboard": {"enabled": True}}})


def test_tracing_sets_only_variables_that_the_runtime_environment_does_not_set(tmp_path: Path) -> None:
    mine = {"OTEL_TRACES_SAMPLER_ARG": "1", "A": "b"}
    values = {
        "ray": {"runtimeEnv": {"working_dir": "s3://app.zip", "env_vars": mine}},
        "tracing": {"endpoint": "http://collector:4318"},
    }
    assert settings_of(values, tmp_path).runtime_env == {
        "working_dir": "s3://app.zip",
        "env_vars": {
            **mine,
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        },
    }


def test_kuberay_settings_that_the_values_omit_have_the_defaults(tmp_path: Path) -> None:
    assert settings_of({"kuberay": {"image": "x"}}, tmp_path).kuberay == KubeRaySettings(image="x")
    kuberay = settings_of(EVERYTHING, tmp_path).kuberay
    assert kuberay.head.resources == {"cpu": "4", "memory": "4Gi"}
    assert kuberay.upgrade_strategy == {"type": "None"}


@BOTH
def test_mig_is_off_unless_the_values_enable_it(values: dict[str, Any] | None, tmp_path: Path) -> None:
    want = MigSettings(enabled=True, namespace="nvidia") if values else MigSettings(enabled=False)
    assert settings_of(values, tmp_path).mig == want


@BOTH
def test_the_model_policy_comes_from_the_values(values: dict[str, Any] | None, tmp_path: Path) -> None:
    everything = ModelPolicy(
        modules=("traffic",),
        files=("/models/",),
        require_digest=True,
        repositories=("google/",),
        remote_code=True,
        hub_endpoint="https://hub.example.com",
        hub_directory="/mnt/hub",
        hub_offline=True,
    )
    assert settings_of(values, tmp_path).models.policy == (everything if values else ModelPolicy())


def test_tokens_come_from_secrets_as_variables_that_the_operator_reads() -> None:
    (container,) = pod(EVERYTHING)["containers"]
    secrets = {
        variable["name"]: (variable["valueFrom"]["secretKeyRef"]["name"], variable["valueFrom"]["secretKeyRef"]["key"])
        for variable in container["env"]
        if "valueFrom" in variable
    }
    assert secrets == {
        "PARTITA_OPERATOR__RAY__TOKEN": ("ray", "token"),
        "PARTITA_OPERATOR__RAY__TOKENS": ("ray", "others"),
        "PARTITA_OPERATOR__KUBERAY__TOKEN": ("ray", "kuberay"),
        "PARTITA_OPERATOR__KUBERAY__REDIS_PASSWORD": ("redis", "operator"),
    }
    assert set(secrets) == {setting.variable for setting in all_settings() if setting.secret is not None}


def test_the_schema_is_up_to_date_with_the_settings() -> None:
    chart_only = json.loads((CHART.parent / "chart-only.schema.json").read_text())
    found = json.loads((CHART / "values.schema.json").read_text())
    assert found == chart_values_schema(chart_only), "run: make schema"
