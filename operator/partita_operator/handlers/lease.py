"""The Lease by which the operator's replicas agree on which of them works."""

from datetime import UTC, datetime

from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, is_conflict, is_missing
from partita_operator.kube.resources import LeaseResource
from partita_operator.reconcile.leadership import LeaseRecord


class LeaseStore:
    """One Lease. Requests are not repeated: the election repeats them."""

    def __init__(self, client: KubernetesClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is now; None if it does not exist."""
        try:
            return _record(await self._client.get(LeaseResource, self._name, self._namespace))
        except ApiError as error:
            if is_missing(error):
                return None
            raise

    async def write(self, record: LeaseRecord, over: LeaseRecord | None) -> LeaseRecord | None:
        """Write the Lease over the version `over`, or create it; None if another replica was first."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = {"name": self._name, "namespace": self._namespace}
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_seconds,
            "leaseTransitions": record.transitions,
            "renewTime": now,
        }
        try:
            if over is None:
                return _record(await self._client.create(LeaseResource, {"metadata": metadata, "spec": spec}))
            metadata["resourceVersion"] = over.version
            return _record(await self._client.replace(LeaseResource, {"metadata": metadata, "spec": spec}))
        except ApiError as error:
            if is_conflict(error):
                return None
            raise


def _record(lease: Document) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        duration_seconds=spec.get("leaseDurationSeconds") or 1,
        transitions=spec.get("leaseTransitions") or 0,
        version=lease["metadata"]["resourceVersion"],
    )
