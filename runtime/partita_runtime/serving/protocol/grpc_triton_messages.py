"""The messages of Triton's extensions to the Open Inference Protocol that Partita supports, as in `grpc_messages`.

Specification: https://github.com/triton-inference-server/common/tree/main/protobuf (grpc_service.proto,
model_config.proto). Fields that Partita never sets are left out.
"""

from collections.abc import Mapping
from typing import Final

TRITON_METHODS: Final = ("ModelConfig", "ModelStatistics", "RepositoryIndex")
"""Unary methods of the service, each from <method>Request to <method>Response."""

REFUSED_METHODS: Final[Mapping[str, str]] = {
    "RepositoryModelLoad": "repository",
    "RepositoryModelUnload": "repository",
    "SystemSharedMemoryStatus": "shared_memory",
    "SystemSharedMemoryRegister": "shared_memory",
    "SystemSharedMemoryUnregister": "shared_memory",
    "CudaSharedMemoryStatus": "shared_memory",
    "CudaSharedMemoryRegister": "shared_memory",
    "CudaSharedMemoryUnregister": "shared_memory",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}
"""Methods that are refused, each with its key in `triton.REFUSALS`."""

TRITON_ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "DataType": (
        "TYPE_INVALID",
        "TYPE_BOOL",
        "TYPE_UINT8",
        "TYPE_UINT16",
        "TYPE_UINT32",
        "TYPE_UINT64",
        "TYPE_INT8",
        "TYPE_INT16",
        "TYPE_INT32",
        "TYPE_INT64",
        "TYPE_FP16",
        "TYPE_FP32",
        "TYPE_FP64",
        "TYPE_STRING",
        "TYPE_BF16",
    )
}
"""Enumerations, with their values from 0."""

TRITON_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ModelInput": ("string name = 1", "enum:DataType data_type = 2", "repeated int64 dims = 4"),
    "ModelOutput": ("string name = 1", "enum:DataType data_type = 2", "repeated int64 dims = 3"),
    "ModelDynamicBatching": (),
    "ModelConfig": (
        "string name = 1",
        "string platform = 2",
        "string backend = 17",
        "int32 max_batch_size = 4",
        "repeated ModelInput input = 5",
        "repeated ModelOutput output = 6",
        "ModelDynamicBatching dynamic_batching = 11",
    ),
    "ModelConfigRequest": ("string name = 1", "string version = 2"),
    "ModelConfigResponse": ("ModelConfig config = 1",),
    "StatisticDuration": ("uint64 count = 1", "uint64 ns = 2"),
    "InferStatistics": (
        "StatisticDuration success = 1",
        "StatisticDuration fail = 2",
        "StatisticDuration queue = 3",
        "StatisticDuration compute_input = 4",
        "StatisticDuration compute_infer = 5",
        "StatisticDuration compute_output = 6",
        "StatisticDuration cache_hit = 7",
        "StatisticDuration cache_miss = 8",
    ),
    "InferBatchStatistics": ("uint64 batch_size = 1",),
    "ModelStatistics": (
        "string name = 1",
        "string version = 2",
        "uint64 last_inference = 3",
        "uint64 inference_count = 4",
        "uint64 execution_count = 5",
        "InferStatistics inference_stats = 6",
        "repeated InferBatchStatistics batch_stats = 7",
    ),
    "ModelStatisticsRequest": ("string name = 1", "string version = 2"),
    "ModelStatisticsResponse": ("repeated ModelStatistics model_stats = 1",),
    "RepositoryIndexRequest": ("string repository_name = 1", "bool ready = 2"),
    "RepositoryIndexResponse.ModelIndex": (
        "string name = 1",
        "string version = 2",
        "string state = 3",
        "string reason = 4",
    ),
    "RepositoryIndexResponse": ("repeated RepositoryIndexResponse.ModelIndex models = 1",),
}
