from .balanced_partition import partition as partition
from .problem import BadSubclustersError as BadSubclustersError
from .problem import NoPartition as NoPartition
from .problem import NoPartitionReason as NoPartitionReason
from .problem import Partition as Partition
from .problem import ServedModel as ServedModel
from .problem import SubclusterProblem as SubclusterProblem
