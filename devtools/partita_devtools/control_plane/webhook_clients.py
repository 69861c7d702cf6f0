"""How the API server identifies itself to admission webhooks: by a certificate of its own authority."""

import json

from partita_devtools.control_plane.commands import StateFiles
from partita_devtools.machine.certificates import KeyPair, issue_client_certificate
from partita_devtools.machine.files import write_private

_NAME = "webhook-client"
_EVERY_SERVER = "*"


def write_webhook_client(authority: KeyPair, files: StateFiles) -> None:
    """Write a client certificate, and the API server's configuration to present it to every webhook that asks."""
    client = issue_client_certificate(authority, files.pki, _NAME)
    credentials = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    kubeconfig = files.pki / f"{_NAME}.kubeconfig"
    users = {"apiVersion": "v1", "kind": "Config", "users": [{"name": _EVERY_SERVER, "user": credentials}]}
    write_private(kubeconfig, json.dumps(users).encode())
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": configuration}],
    }
    write_private(files.admission, json.dumps(admission).encode())
