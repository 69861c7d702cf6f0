"""The messages of the Open Inference Protocol's gRPC service that Partita supports.

Specification: https://github.com/open-inference/open-inference-protocol (open_inference_grpc.proto). They are described
here instead of generated, in a separate descriptor pool: a process may have other copies of the same public names, as
clients of Triton or KServe do, and generated code depends on the version of protobuf.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from partita_runtime.serving.protocol.grpc_triton_messages import TRITON_ENUMS, TRITON_FIELDS, TRITON_METHODS

PACKAGE: Final = "inference"
SERVICE: Final = f"{PACKAGE}.GRPCInferenceService"

METHODS: Final = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    *TRITON_METHODS,
)
"""The service's unary methods, each from <method>Request to <method>Response."""

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("bool live = 1",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("bool ready = 1",),
    "ModelReadyRequest": ("string name = 1", "string version = 2"),
    "ModelReadyResponse": ("bool ready = 1",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("string name = 1", "string version = 2", "repeated string extensions = 3"),
    "ModelMetadataRequest": ("string name = 1", "string version = 2"),
    "ModelMetadataResponse.TensorMetadata": ("string name = 1", "string datatype = 2", "repeated int64 shape = 3"),
    "ModelMetadataResponse": (
        "string name = 1",
        "repeated string versions = 2",
        "string platform = 3",
        "repeated ModelMetadataResponse.TensorMetadata inputs = 4",
        "repeated ModelMetadataResponse.TensorMetadata outputs = 5",
    ),
    "InferParameter": (
        "oneof bool bool_param = 1",
        "oneof int64 int64_param = 2",
        "oneof string string_param = 3",
        "oneof double double_param = 4",
        "oneof uint64 uint64_param = 5",
    ),
    "InferTensorContents": (
        "repeated bool bool_contents = 1",
        "repeated int32 int_contents = 2",
        "repeated int64 int64_contents = 3",
        "repeated uint32 uint_contents = 4",
        "repeated uint64 uint64_contents = 5",
        "repeated float fp32_contents = 6",
        "repeated double fp64_contents = 7",
        "repeated bytes bytes_contents = 8",
    ),
    "ModelInferRequest.InferInputTensor": (
        "string name = 1",
        "string datatype = 2",
        "repeated int64 shape = 3",
        "map InferParameter parameters = 4",
        "InferTensorContents contents = 5",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": ("string name = 1", "map InferParameter parameters = 2"),
    "ModelInferRequest": (
        "string model_name = 1",
        "string model_version = 2",
        "string id = 3",
        "map InferParameter parameters = 4",
        "repeated ModelInferRequest.InferInputTensor inputs = 5",
        "repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6",
        "repeated bytes raw_input_contents = 7",
    ),
    "ModelInferResponse.InferOutputTensor": (
        "string name = 1",
        "string datatype = 2",
        "repeated int64 shape = 3",
        "map InferParameter parameters = 4",
        "InferTensorContents contents = 5",
    ),
    "ModelInferResponse": (
        "string model_name = 1",
        "string model_version = 2",
        "string id = 3",
        "map InferParameter parameters = 4",
        "repeated ModelInferResponse.InferOutputTensor outputs = 5",
        "repeated bytes raw_output_contents = 6",
    ),
    **TRITON_FIELDS,
}
"""Fields as in a .proto file. `oneof` marks a field of the message's only choice; `map TYPE` has string keys, and
`enum:TYPE` is an enumeration."""

_Field = descriptor_pb2.FieldDescriptorProto


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference_grpc.proto", package=PACKAGE, syntax="proto3")
    for name, values in TRITON_ENUMS.items():
        enumeration = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enumeration.value.add(name=value, number=number)
    made: dict[str, Any] = {}
    for name in sorted(_FIELDS, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=name)
    for name, fields in _FIELDS.items():
        for field in fields:
            _add_field(made[name], f".{PACKAGE}.{name}", field.split())
    return file


def _add_field(message: Any, full_name: str, words: list[str]) -> None:
    kind, name, number = words[-4], words[-3], int(words[-1])
    label = words[0] if len(words) == 5 else ""
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if label == "map":
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, full_name, ["string", "key", "=", "1"])
        _add_field(entry, full_name, [kind, "value", "=", "2"])
        field.label, kind = _Field.LABEL_REPEATED, f"{full_name.removeprefix(f'.{PACKAGE}.')}.{entry.name}"
    elif label == "repeated":
        field.label = _Field.LABEL_REPEATED
    elif label == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if kind.startswith("enum:"):
        field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{kind.removeprefix('enum:')}"
    elif kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> Mapping[str, Callable[..., Any]]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_described())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


MESSAGES: Final[Mapping[str, Any]] = _classes()
"""Message classes by their names within the package."""
