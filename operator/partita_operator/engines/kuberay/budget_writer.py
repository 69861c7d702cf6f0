"""Writes the PodDisruptionBudgets of a namespace."""

from collections.abc import Mapping, Sequence
from typing import Any

from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError, NameTakenError
from partita_operator.kube.resources import DisruptionBudgetResource, equal
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import apply_owned, delete_owned, owned_by
from partita_operator.reconcile.actions import ApplyObject
from partita_operator.reconcile.object_changes import object_changes


class BudgetWriter:
    """Makes the budgets of a namespace as desired. Serving does not depend on them, so errors are sentences."""

    def __init__(self, client: KubernetesClient, labels: Mapping[str, str]) -> None:
        """`labels` are on all of them."""
        self._client = client
        self._labels = equal(labels)

    async def write(self, namespace: str, owner_uid: str, desired: Sequence[Mapping[str, Any]]) -> str:
        """Write and delete what differs, among the budgets of this owner. Returns the errors; empty if there are none.

        Raises ApiServerUnavailableError.
        """
        kind, problems = DisruptionBudgetResource, []
        try:
            found = await retried(lambda: self._client.list(kind, namespace, labels=self._labels))
        except ApiError as error:
            return _refused(error)
        present = [
            {"apiVersion": kind.group_version, "kind": kind.kind, **raw} for raw in found if owned_by(raw, owner_uid)
        ]
        for change in object_changes(desired, present):
            try:
                if isinstance(change, ApplyObject):
                    await apply_owned(self._client, kind, change.manifest)
                else:
                    await delete_owned(self._client, kind, change, namespace)
            except NameTakenError as error:
                problems.append(str(error))
            except ApiError as error:
                problems.append(_refused(error))
        return " ".join(dict.fromkeys(problems))


def _refused(error: ApiError) -> str:
    return (
        f"Partita may not list or write PodDisruptionBudgets: {str(error).removesuffix('.')}. Upgrade the Helm "
        "release, which adds the rights."
    )
