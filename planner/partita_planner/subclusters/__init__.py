"""Sub-clusters: the models that share GPUs, where no GPU can hold all models (Symphony, section 4.4).

`partitioning` divides hundreds of models, `sharing` lets the models of one plan share GPUs. May import `task`
and what is below it.
"""

from typing import TYPE_CHECKING

from partita_planner.exports import lazy_exports

if TYPE_CHECKING:
    from partita_planner.subclusters.partitioning import partition
    from partita_planner.subclusters.problem import (
        BadSubclustersError,
        NoPartition,
        NoPartitionReason,
        Partition,
        ServedModel,
        SubclusterProblem,
    )

__all__ = [
    "BadSubclustersError",
    "NoPartition",
    "NoPartitionReason",
    "Partition",
    "ServedModel",
    "SubclusterProblem",
    "partition",
]

__getattr__ = lazy_exports(
    __name__, {"partition": "partitioning", **dict.fromkeys(set(__all__) - {"partition"}, "problem")}
)
