"""How a pool's nodes are found."""

from collections.abc import Mapping

from partita_api.meta import POOL_LABEL


def node_selector(pool: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that find a pool's nodes."""
    return dict(labels) or {POOL_LABEL: pool}
