"""Ingresses of sessions on a real API server, with the operator that keeps them."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kube.exposure.sessions import SELECTOR, exposed, serves, versions
from tests.operator.kubectl import Json, Kubectl, condition, eventually, new_namespace, pool, reason, session

from partita_operator.ports import SessionBackend
from partita_operator.settings.exposure import ExposureSettings

pytestmark = pytest.mark.apiserver


@pytest.fixture
def ingress_class(cluster: Kubectl) -> Iterator[str]:
    """The name of an IngressClass that no controller has."""
    name = f"class-{uuid4().hex[:8]}"
    yield name
    cluster("delete", "ingressclass", name, "--ignore-not-found")


@pytest.fixture
def allowing(operators: Operators, ingress_class: str) -> Operators:
    """Operators that let sessions have Ingresses of the class."""
    exposure = ExposureSettings(
        allowed_hosts=("*.{namespace}.example.com", "shared.example.com"),
        allowed_ingress_classes=(ingress_class,),
        allowed_annotations=("example.com/issuer",),
        checked_tls_secrets=("serve-tls",),
    )
    operators.settings = operators.settings.model_copy(update={"exposure": exposure})
    return operators


def public(namespace: Kubectl, host: str, **ingress: Any) -> Json:
    return serves(namespace, session("traffic", expose={"ingress": {"host": host, **ingress}}))


def create_class(cluster: Kubectl, name: str) -> None:
    spec = {"controller": "example.com/none"}
    cluster.apply(
        {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": name}, "spec": spec}
    )


def report_address(namespace: Kubectl, address: str) -> None:
    """What an ingress controller writes."""
    patch = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
    namespace("patch", "ingress", "traffic", "--subresource=status", "--type=merge", "-p", json.dumps(patch))


async def test_an_ingress_follows_its_session(
    namespace: Kubectl, cluster: Kubectl, allowing: Operators, ingress_class: str
) -> None:
    def ingress() -> Any:
        return namespace.get("ingress", "traffic")

    key, host = f"{namespace.namespace}/traffic", f"serve.{namespace.namespace}.example.com"
    manifest = public(namespace, host, tlsSecretName="serve-tls", annotations={"example.com/issuer": "ours"})
    namespace.apply(manifest)
    async with allowing.running():
        await exposed(namespace, ("False", "IngressClassMissing"))
        create_class(cluster, ingress_class)
        found = await exposed(namespace, ("False", "TLSSecretMissing"))
        assert "Secret serve-tls" in condition(found, "Exposed")["message"]
        namespace("create", "secret", "generic", "serve-tls", "--from-literal=tls.crt=x", "--from-literal=tls.key=y")
        found = await exposed(namespace, ("Unknown", "WaitingForController"))
        assert found["status"]["url"] == f"http://traffic.{namespace.namespace}.svc/{key}"

        report_address(namespace, "192.0.2.7")
        found = await exposed(namespace, ("True", "Public"))
        assert found["status"]["url"] == f"https://{host}/{key}"
        assert found["status"]["clusterUrl"] == f"http://traffic.{namespace.namespace}.svc/{key}"
        assert found["status"]["claimedHosts"][0]["host"] == host
        assert reason(await _settled(namespace)) == ("True", "Serving")
        made = ingress()
        assert made["spec"]["ingressClassName"] == ingress_class
        assert made["spec"]["tls"] == [{"hosts": [host], "secretName": "serve-tls"}]
        assert made["metadata"]["annotations"]["example.com/issuer"] == "ours"

        before = versions(namespace, "ingresses")
        await asyncio.sleep(6 * allowing.settings.resync_seconds)
        assert versions(namespace, "ingresses") == before, "nothing is written at rest"

        drift = [{"op": "replace", "path": "/spec/rules/0/host", "value": "elsewhere.example.com"}]
        namespace("patch", "ingress", "traffic", "--type=json", "-p", json.dumps(drift))
        await eventually(ingress, lambda i: i["spec"]["rules"][0]["host"] == host)
        namespace("delete", "ingress", "traffic")
        await eventually(ingress, lambda i: i is not None)

        namespace.apply(public(namespace, host))
        plain = await eventually(ingress, lambda i: "tls" not in i["spec"])
        assert "example.com/issuer" not in plain["metadata"]["annotations"]
        report_address(namespace, "192.0.2.7")
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: s["status"]["url"].startswith("http://serve.")
        )

        namespace.apply(serves(namespace, session("traffic")))
        await exposed(namespace, ("True", "ServiceReady"))
        await eventually(ingress, lambda i: i is None)
        found = await _settled(namespace)
        assert found["status"]["url"] == f"http://traffic.{namespace.namespace}.svc/{key}"
        assert "clusterUrl" not in found["status"]
        assert "claimedHosts" not in found["status"] or found["status"]["claimedHosts"] == []


async def _settled(namespace: Kubectl) -> Json:
    found = await eventually(
        lambda: namespace.get("isess", "traffic"), lambda s: reason(s, "Reconciling") == ("False", "Settled")
    )
    assert found is not None
    return found


async def test_an_ingress_of_somebody_else_stays(namespace: Kubectl, allowing: Operators) -> None:
    backend = {"service": {"name": "theirs", "port": {"number": 80}}}
    spec = {"defaultBackend": backend}
    namespace.apply(
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "traffic"}, "spec": spec}
    )
    theirs = namespace.get("ingress", "traffic")
    namespace.apply(public(namespace, f"serve.{namespace.namespace}.example.com"))
    async with allowing.running():
        await exposed(namespace, ("False", "NameTaken"))
        assert reason(await _settled(namespace)) == ("True", "Serving")
        assert namespace.get("ingress", "traffic") == theirs
        namespace("delete", "ingress", "traffic")
        await eventually(lambda: namespace.get("ingress", "traffic"), lambda i: i is not None)


async def test_what_the_platform_does_not_allow_is_named(namespace: Kubectl, allowing: Operators) -> None:
    namespace.apply(public(namespace, "serve.other.example.com", annotations={"example.com/snippet": "x"}))
    async with allowing.running():
        found = await exposed(namespace, ("False", "ExposeNotAllowed"))
        message = condition(found, "Exposed")["message"]
        assert f"exposure.allowedHosts of the chart has only *.{namespace.namespace}.example.com" in message
        assert "exposure.allowedAnnotations" in message
        assert reason(await _settled(namespace)) == ("True", "Serving"), "nothing else is disturbed"
        assert namespace.get("ingress", "traffic") is None


async def test_a_host_stays_with_the_namespace_that_has_it(namespace: Kubectl, allowing: Operators) -> None:
    name = f"{namespace.namespace}-b"
    allowing.settings = allowing.settings.model_copy(update={"namespaces": (namespace.namespace, name)})
    allowing.engine.backends[f"{name}/traffic"] = SessionBackend(SELECTOR, 8000, ())
    with new_namespace(namespace.kubeconfig, name) as other:
        try:
            namespace.apply(public(namespace, "shared.example.com"))
            async with allowing.running():
                await eventually(lambda: namespace.get("ingress", "traffic"), lambda i: i is not None)
                other.apply(pool(name), public(other, "shared.example.com"))
                found = await exposed(other, ("False", "HostTaken"))
                message = condition(found, "Exposed")["message"]
                assert "shared.example.com" in message
                assert namespace.namespace not in message.partition("Clients in the cluster")[0]
                assert other.get("ingress", "traffic") is None

                namespace.apply(serves(namespace, session("traffic")))
                await eventually(lambda: other.get("ingress", "traffic"), lambda i: i is not None)
                await eventually(lambda: namespace.get("ingress", "traffic"), lambda i: i is None)
        finally:
            other.clear(name)
