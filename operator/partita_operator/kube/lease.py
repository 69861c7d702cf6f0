"""The Lease by which the operator's replicas agree on which of them works."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_namespaced_resource

from partita_operator.kube.retries import is_missing
from partita_operator.reconcile.leadership import LeaseRecord

_Lease: Final[Any] = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")


class LeaseStore:
    """One Lease. Calls are not repeated: whoever competes for it looks again soon."""

    def __init__(self, client: AsyncClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is now; None if there is none."""
        try:
            return _record(await self._client.get(_Lease, self._name, namespace=self._namespace))
        except ApiError as error:
            if is_missing(error):
                return None
            raise

    async def write(self, record: LeaseRecord, over: LeaseRecord | None) -> LeaseRecord | None:
        """Make the Lease so, if it is still `over`; None if somebody else was first."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = _Lease.from_dict(
            {
                "metadata": {"name": self._name, "namespace": self._namespace}
                | ({"resourceVersion": over.version} if over is not None else {}),
                "spec": {
                    "holderIdentity": record.holder,
                    "leaseDurationSeconds": record.duration_seconds,
                    "leaseTransitions": record.transitions,
                    "renewTime": now,
                },
            }
        )
        try:
            return _record(await (self._client.create(lease) if over is None else self._client.replace(lease)))
        except ApiError as error:
            if error.status.code == HTTPStatus.CONFLICT:
                return None
            raise


def _record(lease: Any) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        duration_seconds=spec.get("leaseDurationSeconds") or 1,
        transitions=spec.get("leaseTransitions") or 0,
        version=lease["metadata"]["resourceVersion"],
    )
