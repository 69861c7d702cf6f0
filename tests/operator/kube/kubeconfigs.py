"""kubeconfig files with one context."""

from pathlib import Path
from typing import Any

import yaml

SERVER = "http://127.0.0.1:1"


def kubeconfig(directory: Path, user: dict[str, Any], namespace: str = "team") -> Path:
    """A file with the credentials of `user`."""
    path = directory / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": namespace}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path
