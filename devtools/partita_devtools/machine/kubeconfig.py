"""Kubeconfigs of API servers on this machine."""

import json
from base64 import b64encode
from pathlib import Path

from partita_devtools.machine.files import write_private


def write_kubeconfig(path: Path, url: str, authority: Path, token: str, namespace: str = "default") -> None:
    """Write a kubeconfig for the bearer of `token`; `authority` is the PEM certificate that signs `url`'s."""
    write_private(
        path,
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "partita-dev",
                "clusters": [
                    {
                        "name": "partita-dev",
                        "cluster": {
                            "server": url,
                            "certificate-authority-data": b64encode(authority.read_bytes()).decode(),
                        },
                    }
                ],
                "users": [{"name": "partita-dev", "user": {"token": token}}],
                "contexts": [
                    {
                        "name": "partita-dev",
                        "context": {"cluster": "partita-dev", "user": "partita-dev", "namespace": namespace},
                    }
                ],
            },
            indent=2,
        ).encode(),
    )
