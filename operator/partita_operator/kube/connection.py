"""Where the API server is and how to authenticate, for the official client and for kopf alike."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import kopf
import yaml
from aiohttp import ClientSession, TCPConnector
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from partita_operator.kube.bodies.apply_text import apply_as_yaml
from partita_operator.kube.bodies.responses import ShallowResponse

_BEARER_TOKEN: Final = "BearerToken"
"""The official configuration's name for the Authorization header."""
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
REMEDY: Final = "give another kubeconfig, or set KUBECONFIG."
"""The end of messages that there is no usable cluster."""


class NoClusterError(Exception):
    """There is no usable configuration of a cluster; the message says what to give."""


@dataclass(frozen=True)
class Connection:
    """A cluster, and the credentials for it."""

    configuration: Configuration
    namespace: str | None = None
    """The namespace of the context, or of the pod."""
    kubeconfig: Path | None = None
    context: str | None = None
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.configuration.host)

    @property
    def token(self) -> str | None:
        """The Authorization header that requests have now."""
        found: str | None = self.configuration.api_key.get(_BEARER_TOKEN)
        return found

    async def renew(self, refused: str | None) -> None:
        """Load the credentials again, unless others than `refused` have come meanwhile. Raises NoClusterError.

        That reads token files again, and runs the credential plugin again.
        """
        async with self._renewing:
            if self.token == refused:
                fresh = await load_config(self.kubeconfig, self.context)
                self.configuration.api_key.update(fresh.configuration.api_key)


async def load_config(kubeconfig: Path | None, context: str | None = None) -> Connection:
    """A context of `kubeconfig`, by default the current one.

    Without a kubeconfig: the pod's account, else $KUBECONFIG, else ~/.kube/config. Raises NoClusterError.
    """
    configuration = Configuration()
    configuration.client_session_kwargs = {"response_class": ShallowResponse, "middlewares": (apply_as_yaml,)}
    try:
        if kubeconfig is None and context is None and _is_pod():
            load_incluster_config(configuration)
            namespace = Path(SERVICE_TOKEN_FILENAME).with_name("namespace").read_text().strip()
            return Connection(configuration, namespace)
        paths = str(kubeconfig or os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG)
        if not _any_exists(paths):
            raise NoClusterError(f"No Kubernetes cluster: {paths} does not exist; {REMEDY}")
        loader = await load_kube_config(
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
        namespace = loader.current_context["context"].get("namespace")
    # For a file that is empty, is not text or has other contents, the official loader raises Python's own errors.
    except (ConfigException, yaml.YAMLError, OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoClusterError(f"No Kubernetes cluster: {error}; {REMEDY}") from error
    return Connection(configuration, namespace, kubeconfig, context)


async def kopf_connection(connection: Connection) -> kopf.ConnectionInfo:
    """The same connection for kopf, with credentials that are loaded now. kopf calls it when its own have expired."""
    fresh = await load_config(connection.kubeconfig, connection.context)
    configuration = fresh.configuration
    scheme, _, credentials = (fresh.token or "").strip().partition(" ")
    return kopf.ConnectionInfo(
        server=fresh.server,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=credentials.strip() or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        default_namespace=fresh.namespace,
        proxy_url=configuration.proxy,
    )


def kopf_session(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """Connections for kopf, as it makes them itself, that read deep objects. Call it in kopf's event loop."""
    session = ClientSession(
        connector=TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        response_class=ShallowResponse,
    )
    return kopf.AiohttpSession(server=info.server, default_namespace=info.default_namespace, aiohttp_session=session)


def _any_exists(paths: str) -> bool:
    """Whether one of the files exists; several are separated as in $KUBECONFIG."""
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _is_pod() -> bool:
    return SERVICE_HOST_ENV_NAME in os.environ and Path(SERVICE_TOKEN_FILENAME).is_file()
