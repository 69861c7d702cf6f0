"""The chart on a cluster with nodes; `python -m tests.cluster.installation` is the end of `make cluster`."""

from pathlib import Path
from typing import Any

from tests.operator.chart.charts import CHART
from tests.operator.kubectl import Json, Kubectl

KUBECONFIG = Path(".partita/cluster/kubeconfig").absolute()
"""Of the cluster that `make cluster` makes."""
RELEASE = "partita"
NAMESPACE = "partita-system"


def image_of(name: str) -> Json:
    """An image's name as the chart takes it."""
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}


def is_installed(helm: Any) -> bool:
    """Whether Helm knows of the release."""
    return any(release["name"] == RELEASE for release in helm.list(all_states=True))


def main() -> None:
    """Install the chart with the image that `make cluster` has built, or upgrade what is installed."""
    from helm_python.config import Config  # tests that read this module do without

    values: Json = {"image": image_of("partita.dev/partita:dev")}
    kubectl = Kubectl(KUBECONFIG, NAMESPACE)
    with Config(kubeconfig_path=KUBECONFIG, namespace=NAMESPACE) as helm:
        if is_installed(helm):
            helm.upgrade(str(CHART), RELEASE, values, timeout=300)
        else:
            helm.install(str(CHART), RELEASE, values, create_namespace=True, timeout=300)
        kubectl("rollout", "status", f"deployment/{RELEASE}", "--timeout=170s")
        print(kubectl("get", "deployments,pods"))


if __name__ == "__main__":
    main()
