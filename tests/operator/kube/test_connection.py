"""Address and credentials of the API server: kubeconfigs, credential plugins, and the account of a pod."""

import sys
from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config
from tests.operator.kube.kubeconfigs import SERVER, kubeconfig

from partita_operator.kube import connection
from partita_operator.kube.connection import NoClusterError, kopf_connection, load_config

PLUGIN = """
import json, pathlib
count = pathlib.Path({count!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {{"token": f"plugin-{{number}}"}}
print(json.dumps({{"apiVersion": {version!r}, "kind": "ExecCredential", "status": status}}))
"""
EXEC_VERSION = "client.authentication.k8s.io/v1"


def plugin(directory: Path) -> dict[str, object]:
    """A user whose credential plugin returns another token at each run."""
    program = directory / "plugin.py"
    program.write_text(PLUGIN.format(count=str(directory / "count"), version=EXEC_VERSION))
    return {"exec": {"apiVersion": EXEC_VERSION, "command": sys.executable, "args": [str(program)]}}


async def test_a_kubeconfig_has_the_server_the_token_and_the_namespace(tmp_path: Path) -> None:
    found = await load_config(kubeconfig(tmp_path, {"token": "t"}))
    assert (found.server, found.token, found.namespace) == (SERVER, "Bearer t", "team")


async def test_the_kubeconfig_of_the_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, {"token": "t"})))
    assert (await load_config(None)).namespace == "team"


async def test_a_credential_plugin_is_run_again_when_its_token_is_refused(tmp_path: Path) -> None:
    found = await load_config(kubeconfig(tmp_path, plugin(tmp_path)))
    assert found.token == "Bearer plugin-1"
    await found.renew("Bearer plugin-1")
    assert found.token == "Bearer plugin-2"
    await found.renew("Bearer plugin-1")
    assert found.token == "Bearer plugin-2", "another request has already renewed it"


async def test_kopf_has_the_same_credentials_and_fresh_ones_at_each_login(tmp_path: Path) -> None:
    found = await load_config(kubeconfig(tmp_path, plugin(tmp_path)))
    info = await kopf_connection(found)
    assert (info.server, info.default_namespace) == (SERVER, "team")
    assert info.as_http_headers() == {"Authorization": "Bearer plugin-2"}


async def test_a_pod_has_the_account_of_its_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "account"), ("ca.crt", "certificate"), ("namespace", "partita-system\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(connection, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))

    found = await load_config(None)
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "partita-system")
    info = await kopf_connection(found)
    assert info.as_http_headers()["Authorization"].lower() == "bearer account"
    assert info.ca_path == str(tmp_path / "ca.crt")

    (tmp_path / "token").write_text("rotated")
    await found.renew(found.token)
    assert found.token == "bearer rotated"


@pytest.mark.parametrize("text", [None, "", "{}", "clusters: ["], ids=["missing", "empty", "no context", "no YAML"])
async def test_a_wrong_kubeconfig_has_a_message_with_the_fix(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NoClusterError, match="give another kubeconfig, or set KUBECONFIG"):
        await load_config(path)


async def test_a_missing_context_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError, match="other"):
        await load_config(kubeconfig(tmp_path, {"token": "t"}), "other")
