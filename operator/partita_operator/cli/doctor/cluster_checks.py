"""Findings from the facts on a cluster. Pure."""

from collections.abc import Iterator
from typing import Final

from partita_operator.cli.doctor.cluster_facts import (
    AccessFacts,
    ClusterFacts,
    DefinitionFacts,
    KubeRayFacts,
    NoCluster,
    NodeFacts,
    ObjectFacts,
    OperatorFacts,
    WebhookFacts,
)
from partita_operator.cli.doctor.findings import Area, CheckFinding, Level, Unknown
from partita_operator.kube.resources import install_crds

NEEDED_RELEASE: Final = (1, 30)
"""The oldest release of Kubernetes that the chart installs on."""
TESTED_RELEASE: Final = (1, 34)
"""The oldest release of Kubernetes that Partita is tested with."""
OLDEST_KUBERAY: Final = (1, 4)
LEASE_GRACE_SECONDS: Final = 60.0
"""How much the clocks of this machine and of the operator's node may differ."""
READ_VERBS: Final = frozenset({"get", "list", "watch"})


def cluster_findings(facts: ClusterFacts | NoCluster, partita: str) -> Iterator[CheckFinding]:
    """One finding for each check. `partita` is the version of this package."""
    if isinstance(facts, NoCluster):
        yield _no_cluster(facts)
        return
    yield _version(facts)
    yield from _definitions(facts)
    yield from _access(facts)
    yield from _operators(facts, partita)
    yield from _objects(facts)
    yield from _webhooks(facts)
    yield _kuberay(facts)
    yield _nodes(facts)
    yield _metrics(facts)


def _finding(check: str, level: Level, message: str, action: str = "", command: str = "") -> CheckFinding:
    return CheckFinding(Area.CLUSTER, check, level, message, action, command)


def _unreadable(check: str, unknown: Unknown, command: str) -> CheckFinding:
    return _finding(
        check, Level.SKIPPED, f"It cannot be read: {unknown.reason}.", "Check your rights in the cluster.", command
    )


def _no_cluster(facts: NoCluster) -> CheckFinding:
    if facts.is_expected:
        return _finding(
            "API server", Level.ERROR, facts.reason, "Check the kubeconfig and the network.", "kubectl cluster-info"
        )
    return _finding(
        "API server",
        Level.SKIPPED,
        facts.reason,
        "Name a cluster with --kubeconfig, or start one on this machine.",
        "partita dev up --operator",
    )


def _version(facts: ClusterFacts) -> CheckFinding:
    if isinstance(facts.version, Unknown):
        return _unreadable("API server", facts.version, f"kubectl {facts.flags} version")
    release = ".".join(map(str, facts.version))
    server = f"The API server at {facts.server} is Kubernetes {release}"
    use_newer = f"Use Kubernetes {'.'.join(map(str, TESTED_RELEASE))} or newer."
    if facts.version < NEEDED_RELEASE:
        return _finding("API server", Level.ERROR, f"{server}, which is too old.", use_newer)
    if facts.version < TESTED_RELEASE:
        return _finding("API server", Level.WARNING, f"{server}. Partita is not tested with it.", use_newer)
    return _finding("API server", Level.OK, f"{server}.")


def _definitions(facts: ClusterFacts) -> Iterator[CheckFinding]:
    if isinstance(facts.definitions, Unknown):
        yield _unreadable("CRDs", facts.definitions, f"kubectl {facts.flags} auth can-i --list")
        return
    for definition in facts.definitions:
        yield _definition(definition, facts.flags)


def _definition(facts: DefinitionFacts, flags: str) -> CheckFinding:
    check = f"CRD {facts.kind}"
    apply = install_crds(flags)
    if not facts.is_served:
        return _finding(check, Level.ERROR, "It is not installed.", "Install the CRDs.", apply)
    if isinstance(facts.is_current, Unknown):
        return _finding(check, Level.OK, f"It is installed; its schema cannot be read: {facts.is_current.reason}.")
    if not facts.is_current:
        return _finding(
            check,
            Level.WARNING,
            "It is installed. Its schema differs from this package's.",
            "If the cluster has an older Partita, update the CRDs; if it has a newer one, update this package.",
            apply,
        )
    return _finding(check, Level.OK, "It is installed, with the schema of this package.")


def _access(facts: ClusterFacts) -> Iterator[CheckFinding]:
    if isinstance(facts.access, Unknown):
        yield _unreadable("rights", facts.access, f"kubectl {facts.flags} auth can-i --list")
        return
    for access in facts.access:
        yield _rights(access, facts)


def _rights(access: AccessFacts, facts: ClusterFacts) -> CheckFinding:
    check = f"rights {access.kind}"
    scope = "in the cluster" if access.kind == "GPUPool" else f"in namespace {facts.namespace}"
    if not access.denied:
        return _finding(check, Level.OK, f"You may read and change {access.kind}s {scope}.")
    denied = ", ".join(access.denied)
    show = f"kubectl {facts.flags} auth can-i --list"
    if READ_VERBS & set(access.denied):
        return _finding(
            check,
            Level.ERROR,
            f"You may not {denied} {access.kind}s {scope}.",
            "Ask an administrator for the role view or edit.",
            show,
        )
    if access.kind == "InferenceSession":
        return _finding(
            check,
            Level.WARNING,
            f"You may read InferenceSessions {scope}, but not {denied} them.",
            "Ask an administrator for the role edit if you want to change sessions.",
            show,
        )
    return _finding(check, Level.OK, f"You may read {access.kind}s {scope}; {denied} is for administrators.")


def _operators(facts: ClusterFacts, partita: str) -> Iterator[CheckFinding]:
    if isinstance(facts.operators, Unknown):
        yield _unreadable("operator", facts.operators, f"kubectl {facts.flags} auth can-i list deployments -A")
        return
    if not facts.operators:
        yield _finding(
            "operator",
            Level.WARNING,
            "There is no Deployment of the operator; it may run outside of the cluster.",
            "If it does not, install the chart.",
            "helm install partita charts/partita --namespace partita-system --create-namespace",
        )
    for operator in facts.operators:
        yield _operator(operator, facts.flags, partita)
        yield _lease(operator, facts)


def _operator(operator: OperatorFacts, flags: str, partita: str) -> CheckFinding:
    name = f"Deployment {operator.namespace}/{operator.name}"
    if operator.replicas == 0:
        return _finding(
            "operator",
            Level.ERROR,
            f"{name} has 0 replicas.",
            "Start it.",
            f"kubectl {flags} --namespace {operator.namespace} scale deployment/{operator.name} --replicas=1",
        )
    if operator.ready == 0:
        return _finding(
            "operator",
            Level.ERROR,
            f"No pod of {name} is ready.",
            "Read its log.",
            f"kubectl {flags} --namespace {operator.namespace} logs deployment/{operator.name} --tail=50",
        )
    if operator.version and operator.version != partita:
        return _finding(
            "operator",
            Level.WARNING,
            f"{name} has Partita {operator.version}, and this package is {partita}.",
            "Use the same version of both.",
            f"helm list --all-namespaces --filter {operator.name}",
        )
    return _finding("operator", Level.OK, f"{name} has {operator.ready} of {operator.replicas} pods ready.")


def _lease(operator: OperatorFacts, facts: ClusterFacts) -> CheckFinding:
    check, lease = "leader election", operator.lease
    place = f"--namespace {operator.namespace}"
    show = f"kubectl {facts.flags} {place} get lease {operator.name} -o yaml"
    log = f"kubectl {facts.flags} {place} logs deployment/{operator.name} --tail=50"
    if isinstance(lease, Unknown):
        return _unreadable(check, lease, show)
    if lease is None:
        return _finding(
            check, Level.WARNING, f"There is no Lease {operator.namespace}/{operator.name}.", "Read the log.", log
        )
    if not lease.holder:
        return _finding(check, Level.ERROR, "No replica of the operator holds the Lease.", "Read the log.", log)
    if lease.age_seconds > lease.duration_seconds + LEASE_GRACE_SECONDS:
        return _finding(
            check,
            Level.ERROR,
            f"{lease.holder} has not renewed the Lease for {lease.age_seconds:.0f} s.",
            "Read the operator's log, and compare the clocks of this machine and of the nodes.",
            log,
        )
    return _finding(check, Level.OK, f"{lease.holder} holds the Lease.")


def _objects(facts: ClusterFacts) -> Iterator[CheckFinding]:
    check = "pools and sessions"
    if isinstance(facts.objects, Unknown):
        yield _unreadable(check, facts.objects, f"kubectl {facts.flags} get gpupools")
        return
    if not facts.objects:
        yield _finding(check, Level.SKIPPED, "There are none yet.")
        return
    if late := [found for found in facts.objects if not found.is_processed]:
        yield _finding(
            check,
            Level.ERROR,
            f"The operator has not processed {_names(late)}.",
            "Check that the operator runs and serves these namespaces: `namespaces` of the chart.",
            f"kubectl {facts.flags} get gpupools,inferencesessions --all-namespaces",
        )
    elif unready := [found for found in facts.objects if found.ready != "True"]:
        first = unready[0]
        reason = f": {first.reason.rstrip('.')}" if first.reason else ""
        yield _finding(
            check,
            Level.WARNING,
            f"{_names(unready)} {'is' if len(unready) == 1 else 'are'} not Ready{reason}.",
            "Read the conditions.",
            f"kubectl {facts.flags} get gpupools,inferencesessions --all-namespaces",
        )
    else:
        yield _finding(check, Level.OK, f"All {len(facts.objects)} are Ready.")


def _names(objects: list[ObjectFacts]) -> str:
    shown = [f"{found.kind} {found.key}" for found in objects[:3]]
    return ", ".join(shown) + (f" and {len(objects) - 3} more" if len(objects) > 3 else "")


def _webhooks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    if isinstance(facts.webhooks, Unknown):
        yield _unreadable(
            "webhook", facts.webhooks, f"kubectl {facts.flags} auth can-i list validatingwebhookconfigurations"
        )
        return
    if not facts.webhooks:
        yield _finding(
            "webhook",
            Level.SKIPPED,
            "The admission webhook is not installed; it is optional.",
            "Install it with admission.enabled=true in the chart's values.",
        )
    for webhook in facts.webhooks:
        yield _webhook(webhook, facts.flags)


def _webhook(webhook: WebhookFacts, flags: str) -> CheckFinding:
    show = f"kubectl {flags} get validatingwebhookconfiguration {webhook.name} -o yaml"
    if not webhook.has_authority:
        return _finding(
            "webhook",
            Level.ERROR,
            f"{webhook.name} has no caBundle.",
            "Check cert-manager, or upgrade the chart.",
            show,
        )
    if isinstance(webhook.endpoints, Unknown):
        return _unreadable("webhook", webhook.endpoints, show)
    if webhook.service and webhook.endpoints == 0:
        namespace, _, name = webhook.service.partition("/")
        return _finding(
            "webhook",
            Level.ERROR,
            f"No pod is ready behind the Service {webhook.service} of {webhook.name}; changes may be refused.",
            "Check the operator's pods.",
            f"kubectl {flags} --namespace {namespace} get service,endpoints {name}",
        )
    return _finding("webhook", Level.OK, f"{webhook.name} is installed and its pods are ready.")


def _kuberay(facts: ClusterFacts) -> CheckFinding:
    if isinstance(facts.kuberay, Unknown):
        return _unreadable("KubeRay", facts.kuberay, f"kubectl {facts.flags} get crd rayservices.ray.io")
    return _installed_kuberay(facts.kuberay, facts.flags)


def _installed_kuberay(kuberay: KubeRayFacts, flags: str) -> CheckFinding:
    install = "helm install kuberay-operator kuberay-operator --repo https://ray-project.github.io/kuberay-helm/"
    oldest = ".".join(map(str, OLDEST_KUBERAY))
    sessions = () if isinstance(kuberay.sessions, Unknown) else kuberay.sessions
    missing = {"rayclusters", "rayservices"} - set(kuberay.kinds)
    if missing and sessions:
        return _finding(
            "KubeRay",
            Level.ERROR,
            f"KubeRay's {' and '.join(sorted(missing))} are not installed, and session {sessions[0]} needs them.",
            f"Install KubeRay {oldest} or newer.",
            install,
        )
    if missing:
        return _finding(
            "KubeRay",
            Level.SKIPPED,
            "It is not installed, and no session has engine KubeRay.",
            "Install it to run sessions in separate pods.",
            install,
        )
    if isinstance(kuberay.version, Unknown):
        return _finding("KubeRay", Level.OK, "Its CRDs are installed; the version of its operator cannot be read.")
    if kuberay.version is None:
        return _finding(
            "KubeRay",
            Level.WARNING,
            "Its CRDs are installed, but no Deployment of its operator was found.",
            f"Install KubeRay {oldest} or newer.",
            install,
        )
    if kuberay.version and tuple(map(int, kuberay.version.split(".")[:2])) < OLDEST_KUBERAY:
        return _finding(
            "KubeRay",
            Level.ERROR,
            f"Its operator is version {kuberay.version}; Partita needs {oldest} or newer.",
            "Update KubeRay.",
            f"kubectl {flags} get deployments --all-namespaces -l app.kubernetes.io/name=kuberay-operator",
        )
    return _finding("KubeRay", Level.OK, f"Its operator is version {kuberay.version or 'unknown'}.")


def _nodes(facts: ClusterFacts) -> CheckFinding:
    if isinstance(facts.nodes, Unknown):
        return _unreadable("GPU nodes", facts.nodes, f"kubectl {facts.flags} auth can-i list nodes")
    if not facts.nodes:
        return _finding(
            "GPU nodes",
            Level.WARNING,
            "No node offers accelerators; only emulated pools and pools on a Ray cluster have capacity.",
            "Install the device plugin of your accelerators on their nodes.",
            f"kubectl {facts.flags} describe nodes",
        )
    if down := [node.name for node in facts.nodes if not node.ready]:
        return _finding(
            "GPU nodes",
            Level.WARNING,
            f"Nodes with accelerators are not Ready: {', '.join(down)}.",
            "Check these nodes.",
            f"kubectl {facts.flags} describe nodes {' '.join(down)}",
        )
    if unlabelled := [node.name for node in facts.nodes if not node.product and _is_nvidia(node)]:
        return _finding(
            "GPU nodes",
            Level.WARNING,
            f"Nodes have GPUs but no label nvidia.com/gpu.product: {', '.join(unlabelled)}.",
            "Install GPU Feature Discovery, or label the nodes, so pools can select a class of GPU.",
            f"kubectl {facts.flags} get nodes -L nvidia.com/gpu.product",
        )
    return _finding("GPU nodes", Level.OK, f"{len(facts.nodes)}: {'; '.join(map(_described, facts.nodes))}.")


def _is_nvidia(node: NodeFacts) -> bool:
    return any(name.startswith("nvidia.com/") for name in node.accelerators)


def _described(node: NodeFacts) -> str:
    amounts = ", ".join(f"{amount} {name}" for name, amount in node.accelerators.items())
    return f"{node.name} ({amounts}{f', {node.product}' if node.product else ''})"


def _metrics(facts: ClusterFacts) -> CheckFinding:
    if isinstance(facts.metrics, Unknown):
        return _unreadable("metrics", facts.metrics, f"kubectl {facts.flags} auth can-i list services -A")
    metrics = facts.metrics
    if not metrics.services:
        return _finding(
            "metrics",
            Level.SKIPPED,
            "There is no Service with the operator's metrics.",
            "Set metrics.service.enabled=true in the chart's values if Prometheus should read them.",
        )
    place = ", ".join(metrics.services)
    if metrics.has_prometheus_operator and metrics.monitors == ():
        return _finding(
            "metrics",
            Level.WARNING,
            f"Prometheus does not read the metrics of Service {place}, because no ServiceMonitor selects it.",
            "Set metrics.serviceMonitor.enabled=true in the chart's values.",
        )
    return _finding("metrics", Level.OK, f"The Service {place} has the operator's metrics.")
