"""Reviews manifests for the API server's admission webhook, using the objects that the operator knows."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from partita_operator.kube.cache import ClusterCache, Kind, KindMissingError
from partita_operator.kube.resources import read_pool, read_session
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.reconcile.admission import Verdict, judge_pool, judge_session
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.settings.model import OperatorSettings

logger = logging.getLogger(__name__)

Document = Mapping[str, Any]

LIST_PAUSE_S: Final = 5.0
"""Least time between two lists of the pools. Watches report new pools, usually within some milliseconds."""


class Admission:
    """Decides whether sessions and pools may be stored. The CRD itself keeps plans from changes."""

    def __init__(self, cache: ClusterCache, settings: OperatorSettings, on_review: Callable[[str], None]) -> None:
        """`on_review` receives each outcome: `allowed`, `refused` or `error`."""
        self._cache = cache
        self._settings = settings
        self._on_review = on_review
        self._may_list_at = 0.0
        """When pools may be listed again, by the clock of the event loop."""

    async def review(self, kind: Kind, old: Document | None, new: Document) -> Verdict:
        """Whether `new` may replace `old`, or be created if `old` is None."""
        outcome = "error"
        try:
            verdict = await self._judge(kind, old, new)
            outcome = "refused" if verdict.refusal else "allowed"
        finally:
            self._on_review(outcome)
        return verdict

    async def _judge(self, kind: Kind, old: Document | None, new: Document) -> Verdict:
        """The verdict on `new`.

        Only a changed spec is reviewed; changes of metadata always pass. Before a refusal the pools are listed again,
        because one may have been created a moment ago, but not for each of many refusals.
        """
        if new["metadata"].get("deletionTimestamp") or (old is not None and old.get("spec") == new.get("spec")):
            return Verdict()
        verdict = _review(kind, new, self._cache.cluster(), self._settings)
        if verdict.refusal:
            await self._list_pools()
            verdict = _review(kind, new, self._cache.cluster(), self._settings)
        if verdict.refusal:
            logger.info("%s %s is refused: %s", kind, new["metadata"].get("name"), verdict.refusal)
        return verdict

    async def _list_pools(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._may_list_at:
            return
        self._may_list_at = now + LIST_PAUSE_S
        try:
            await self._cache.refresh((Kind.POOL,))
        except (ApiServerUnavailableError, KindMissingError) as error:
            logger.warning("reviewing with the last known pools, because the API server cannot be read: %s", error)


def _review(kind: Kind, new: Document, cluster: Cluster, settings: OperatorSettings) -> Verdict:
    if kind is Kind.SESSION:
        return judge_session(*read_session(new, None), cluster, settings)
    return judge_pool(*read_pool(new), cluster)
