"""Where the API server is and how to authenticate, for lightkube's client and for kopf alike."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import kopf
from lightkube import AsyncClient, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import UserExec
from lightkube.core.exceptions import ConfigError

from partita_api.meta import FIELD_MANAGER

_EXEC_TIMEOUT_S: Final = 60


class NoClusterError(Exception):
    """There is no usable configuration of a cluster; the message says what to give."""


def load_config(kubeconfig: Path | None, context: str | None = None) -> SingleConfig:
    """A context of `kubeconfig`, at first the current one; None: the pod's account, else $KUBECONFIG or ~/.kube/config.

    Raises NoClusterError.
    """
    try:
        loaded = KubeConfig.from_file(kubeconfig) if kubeconfig is not None else KubeConfig.from_env()
        config = loaded.get(context)
    except (ConfigError, KeyError) as error:
        raise NoClusterError(f"No Kubernetes cluster: {error}; pass --kubeconfig or set KUBECONFIG.") from error
    assert config is not None  # get() without a default raises instead
    return config


def client(config: SingleConfig) -> AsyncClient:
    """A client that writes as Partita's field manager."""
    return AsyncClient(config=config, field_manager=FIELD_MANAGER)


def kopf_connection(config: SingleConfig) -> kopf.ConnectionInfo:
    """The same connection for kopf; called anew when kopf's credentials have expired."""
    cluster, user = config.cluster, config.user
    files = {
        "ca_path": cluster.certificate_auth,
        "certificate_path": user.client_cert if user else None,
        "private_key_path": user.client_key if user else None,
    }
    token = user.token if user else None
    if user is not None and user.token_file:
        token = Path(user.token_file).read_text().strip()
    elif user is not None and user.exec:
        token = _exec_token(user.exec)
    return kopf.ConnectionInfo(
        server=cluster.server,
        ca_data=cluster.certificate_auth_data,
        insecure=cluster.insecure,
        token=token,
        username=user.username if user else None,
        password=user.password if user else None,
        certificate_data=user.client_cert_data if user else None,
        private_key_data=user.client_key_data if user else None,
        default_namespace=config.namespace,
        **{name: str(config.abs_file(path)) for name, path in files.items() if path},
    )


def _exec_token(plugin: UserExec) -> str:
    """The token that a kubeconfig's credential plugin gives."""
    environment = {**os.environ, **{variable.name: variable.value for variable in plugin.env or ()}}
    answer = subprocess.run(
        [plugin.command, *(plugin.args or ())],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=_EXEC_TIMEOUT_S,
    )
    return str(json.loads(answer.stdout)["status"]["token"])
