"""The chart's objects for the admission webhook: its configuration, its Service and its certificate."""

from base64 import b64decode
from typing import Any

import pytest
import yaml
from cryptography import x509
from tests.operator.chart.charts import CHART, documents
from tests.operator.kubectl import Kubectl, cluster_with_crds

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.handlers.watches import WEBHOOK_PATH
from partita_operator.settings.model import AdmissionSettings

cluster = cluster_with_crds
ON: dict[str, Any] = {"admission": {"enabled": True}}
NAME = "partita-admission"
HOST = "partita-admission.partita-system.svc"


def found(kind: str, values: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [document for document in documents(values) if document["kind"] == kind]


def one(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    (document,) = found(kind, values)
    return document


def admission_settings(values: dict[str, Any] | None) -> dict[str, Any]:
    """The section `admission` of the operator's config file."""
    (config,) = [c for c in found("ConfigMap", values) if c["metadata"]["name"] == "partita-config"]
    section: dict[str, Any] = yaml.safe_load(config["data"]["config.yaml"])["admission"]
    return section


def with_cert_manager(**issuer: str) -> dict[str, Any]:
    return {"admission": {"enabled": True, "certManager": {"enabled": True, "issuerRef": issuer}}}


def test_there_is_no_webhook_by_default() -> None:
    assert not {d["kind"] for d in documents()} & {"ValidatingWebhookConfiguration", "Secret", "Certificate"}
    assert admission_settings(None)["enabled"] is False


def test_the_api_server_sends_pools_and_sessions_to_the_operator() -> None:
    (webhook,) = one("ValidatingWebhookConfiguration", ON)["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["sideEffects"] == "None"
    (rule,) = webhook["rules"]
    assert rule["resources"] == ["gpupools", "inferencesessions"], "no status"
    assert rule["operations"] == ["CREATE", "UPDATE"]
    service = next(s for s in found("Service", ON) if s["metadata"]["name"] == NAME)
    assert webhook["clientConfig"]["service"] == {
        "name": NAME,
        "namespace": "partita-system",
        "port": 443,
        "path": f"/{WEBHOOK_PATH}",
    }
    pod = one("Deployment", ON)["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert {"name": "admission", "containerPort": 9443, "protocol": "TCP"} in container["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == "admission"
    assert admission_settings(ON) == {"clientCa": "", "enabled": True, "port": 9443}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    directory = str(AdmissionSettings().certificate_directory)
    assert mounts["certificates"] == {"name": "certificates", "mountPath": directory, "readOnly": True}


def test_the_chart_s_certificate_is_for_the_service_and_trusted_by_the_api_server() -> None:
    secret = one("Secret", ON)
    certificate = x509.load_pem_x509_certificate(b64decode(secret["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    (webhook,) = one("ValidatingWebhookConfiguration", ON)["webhooks"]
    authority = x509.load_pem_x509_certificate(b64decode(secret["data"]["ca.crt"]))
    certificate.verify_directly_issued_by(authority)
    assert x509.load_pem_x509_certificate(b64decode(webhook["clientConfig"]["caBundle"])).subject == authority.subject
    volumes = {v["name"]: v for v in one("Deployment", ON)["spec"]["template"]["spec"]["volumes"]}
    assert volumes["certificates"]["secret"]["secretName"] == secret["metadata"]["name"]


@pytest.mark.parametrize(
    ("issuer", "want", "want_issuers"),
    [
        pytest.param({}, {"kind": "Issuer", "name": NAME}, 1, id="self-signed"),
        pytest.param(
            {"kind": "ClusterIssuer", "name": "ours"}, {"kind": "ClusterIssuer", "name": "ours"}, 0, id="existing"
        ),
    ],
)
def test_cert_manager_makes_the_certificate(issuer: dict[str, str], want: dict[str, str], want_issuers: int) -> None:
    values = with_cert_manager(**issuer)
    certificate = one("Certificate", values)["spec"]
    assert (certificate["issuerRef"], certificate["dnsNames"], certificate["secretName"]) == (want, [HOST], NAME)
    assert len(found("Issuer", values)) == want_issuers
    assert not found("Secret", values)
    configuration = one("ValidatingWebhookConfiguration", values)
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": f"partita-system/{NAME}"}
    assert "caBundle" not in configuration["webhooks"][0]["clientConfig"]
    assert documents(values) == documents(values), "without a cluster, each rendering is the same"


@pytest.mark.apiserver
def test_an_upgrade_keeps_the_certificate(cluster: Kubectl, control_plane: ControlPlane) -> None:
    config = pytest.importorskip("helm_python.config", reason="Helm's SDK is missing: pip install helm-python-sdk")
    chart, kubectl = str(CHART), Kubectl(cluster.kubeconfig, "kept-certificate")
    with config.Config(kubeconfig_path=control_plane.kubeconfig, namespace=kubectl.namespace) as helm:
        helm.install(chart, "kept", ON, create_namespace=True)
        try:
            before = kubectl.get("secret", "kept-partita-admission")
            helm.upgrade(chart, "kept", {"admission": {"enabled": True, "timeoutSeconds": 7}})
            after = kubectl.get("secret", "kept-partita-admission")
            configuration = kubectl.get("validatingwebhookconfiguration", "kept-partita-admission")
        finally:
            helm.uninstall("kept")
    assert before is not None
    assert after is not None
    assert configuration is not None
    assert after["data"] == before["data"]
    (webhook,) = configuration["webhooks"]
    assert (webhook["timeoutSeconds"], webhook["clientConfig"]["caBundle"]) == (7, before["data"]["ca.crt"])
