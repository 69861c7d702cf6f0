"""The sources of settings, their precedence, and the errors of wrong settings."""

from pathlib import Path
from typing import Any

import pytest

from partita_operator.settings.fields import all_settings
from partita_operator.settings.loading import BadSettingsError, load_settings, settings_yaml
from partita_operator.settings.model import OperatorSettings
from partita_runtime.serving.transport.kind import TransportKind

PREFIX = "PARTITA_OPERATOR__"
VISION = "ray: {clusters: [{name: vision, address: 'http://vision:8265'}]}"


def file(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(text)
    return path


def test_without_any_source_the_settings_are_the_defaults() -> None:
    assert load_settings({}) == OperatorSettings()


def test_flags_override_variables_which_override_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = file(tmp_path, "ray: {serveUrl: http://file, serveHttpPort: 1, address: http://file}\nresyncSeconds: 9")
    monkeypatch.setenv(f"{PREFIX}RAY__SERVE_URL", "http://variable")
    monkeypatch.setenv(f"{PREFIX}RAY__SERVE_HTTP_PORT", "2")
    settings = load_settings({("ray", "serveUrl"): "http://flag"}, config)
    assert settings.ray.serve_url == "http://flag"
    assert settings.ray.serve_http_port == 2
    assert settings.ray.address == "http://file"
    assert settings.resync_seconds == 9


def test_text_becomes_numbers_lists_and_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "NAMESPACES": "[a, b]",
        "TRANSPORT": "ActorCalls",
        "RAY__RUNTIME_ENV": '{"env_vars": {"A": "b"}}',
        "KUBERAY__HEAD__RESOURCES": "{cpu: '4'}",
        "MIG__ENABLED": "true",
        "LEADER_ELECTION__LEASE_DURATION_SECONDS": "20",
    }.items():
        monkeypatch.setenv(PREFIX + name, value)
    settings = load_settings({})
    assert settings.namespaces == ("a", "b")
    assert settings.transport is TransportKind.ACTOR_CALLS
    assert settings.ray.runtime_env == {"env_vars": {"A": "b"}}
    assert settings.kuberay.head.resources == {"cpu": "4"}
    assert settings.mig.enabled
    assert settings.leader_election.lease_duration_seconds == 20


def test_every_setting_can_be_set_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in all_settings():
        monkeypatch.setenv(setting.variable, "[")
    with pytest.raises(BadSettingsError) as error:
        load_settings({})
    message = str(error.value)
    free_text = {"kuberay.image", "kuberay.rayVersion", "kuberay.authSecret", "profiling.image", "mig.configMap"}
    free_text |= {"kuberay.redisAddress", "kuberay.redisSecret", "kuberay.transportTlsSecret"}
    free_text |= {"mig.namespace", "leaderElection.namespace", "leaderElection.name"}
    free_text |= {"ray.tokenSecret", "kuberay.tokenSecret", "admission.certificateDirectory"}
    assert {setting.key for setting in all_settings() if f"  {setting.key}: " not in message} == free_text


def test_an_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}RAY__TOKEN", "")
    assert load_settings({}).ray.token is None


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"{PREFIX}RAY__TOKEN", "hunter2")
    monkeypatch.setenv(f"{PREFIX}RAY__TOKENS", '{"vision": "hunter3"}')
    settings = load_settings({}, file(tmp_path, VISION))
    shown = settings_yaml(settings)
    assert "hunter" not in shown + repr(settings)
    assert "token: (hidden)" in shown

    monkeypatch.setenv(f"{PREFIX}RAY__TOKENS", "hunter4")
    with pytest.raises(BadSettingsError, match=r"ray\.tokensSecret") as error:
        load_settings({}, file(tmp_path, "kuberay: {token: hunter5}"))
    assert "hunter" not in str(error.value)
    assert "kuberay.tokenSecret of the chart" in str(error.value)


def test_a_token_of_an_unknown_ray_cluster_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"{PREFIX}RAY__TOKENS", '{"visoin": "hunter2"}')
    with pytest.raises(BadSettingsError, match=r"ray\.tokensSecret has a token for visoin") as error:
        load_settings({}, file(tmp_path, VISION))
    assert "hunter" not in str(error.value)


@pytest.mark.parametrize("password", ["two words", "line\n", "a*", "what?", "[a", 'a"b', "it's", "a\\b"])
def test_a_password_that_would_not_reach_redis_unchanged_is_refused(
    password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{PREFIX}KUBERAY__REDIS_PASSWORD", password)
    with pytest.raises(BadSettingsError, match=r"kuberay\.redisPasswordSecret: .* may not contain spaces") as error:
        load_settings({})
    assert password not in str(error.value).replace("*, ? and [", "")


def test_the_printed_settings_are_a_config_file_with_the_same_settings(tmp_path: Path) -> None:
    given = load_settings({("namespaces",): ("a",), ("mig", "products"): "[]", ("ray", "runtimeEnv"): "{pip: [x]}"})
    assert load_settings({}, file(tmp_path, settings_yaml(given))) == given


@pytest.mark.parametrize(
    ("text", "want_words"),
    [
        pytest.param("raay: {}", ["raay: unknown key", "profiling, ray"], id="unknown section"),
        pytest.param(
            "profiling: {timeoutSecond: 3}",
            ["profiling.timeoutSecond: unknown key", "profiling has attempts, backoffSeconds, image, memory"],
            id="unknown key",
        ),
        pytest.param(
            "profiling: {attempts: 0}",
            ["profiling.attempts: 0 (from ", "config.yaml) is wrong: it must be greater than or equal to 1"],
            id="out of bounds",
        ),
        pytest.param("transport: Pigeons", ["transport: 'Pigeons'", "'Streams' or 'ActorCalls'"], id="not a choice"),
        pytest.param("ray: {address: 'ray:8265'}", ["ray.address: 'ray:8265'", "https?"], id="not a URL"),
        pytest.param(
            "ray: {clusters: [{name: a, address: 'http://a'}, {name: a, address: 'http://b'}]}",
            ["ray: each name of ray.clusters"],
            id="two Ray clusters of one name",
        ),
        pytest.param(
            "ray: {address: 'http://Ray', clusters: [{name: a, address: 'http://ray:80/'}]}",
            ["ray: ray.address and the addresses of ray.clusters must be different"],
            id="two names of one Ray cluster",
        ),
        pytest.param("kuberay: {workers: {cpu: 2}}", ["kuberay.workers.cpu", "has nodeSelector"], id="deeper"),
        pytest.param(
            "kuberay: {serveUrl: 'http://{pod}'}", ["kuberay.serveUrl", "placeholders {service}"], id="unknown brace"
        ),
        pytest.param(
            "kuberay: {redisAddress: '{service}:6379'}",
            ["kuberay.redisAddress", "placeholder {namespace}"],
            id="a placeholder of another setting",
        ),
        pytest.param("mig: {products: [{name: x}]}", ["mig.products.0.slices", "required"], id="in a list"),
        pytest.param("namespaces: [a, a]", ["namespaces: ['a', 'a']", "once"], id="a name twice"),
        pytest.param("leaderElection: {name: x}", ["leaderElection", "both a namespace and a name"], id="half a Lease"),
        pytest.param("models: {allowedFiles: [/models]}", ["models.allowedFiles.0: '/models'"], id="no directory"),
        pytest.param("metrics: 3", ["metrics: 3 is wrong: it must be an object; metrics has port"], id="no section"),
        pytest.param("- a", ["is not an object"], id="a list"),
        pytest.param("a: [", ["is not YAML"], id="no YAML"),
    ],
)
def test_a_wrong_file_is_explained_by_chart_keys(text: str, want_words: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadSettingsError) as error:
        load_settings({}, file(tmp_path, text))
    for words in want_words:
        assert words in str(error.value)


def test_all_problems_are_reported_at_once_with_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}METRICS__PORT", "70000")
    monkeypatch.setenv(f"{PREFIX}METRICS__PORTS", "1")
    flags: dict[tuple[str, ...], Any] = {("health", "port"): "x", ("namespaces",): ("A",)}
    with pytest.raises(BadSettingsError) as error:
        load_settings(flags, file(tmp_path, "raay: 1"))
    lines = str(error.value).splitlines()
    assert len(lines) == 5
    for line, words in zip(
        sorted(lines),
        [
            f"{PREFIX}METRICS__PORTS: no setting",
            "health.port: 'x' (from flag --health-port)",
            f"metrics.port: '70000' (from environment variable {PREFIX}METRICS__PORT)",
            "namespaces.0: 'A' (from flag --namespaces)",
            "raay: ",
        ],
        strict=True,
    ):
        assert line.strip().startswith(words)
