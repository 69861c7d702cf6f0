"""The error of loading, capturing and cutting models."""

from enum import StrEnum
from typing import Final


class ModelErrorReason(StrEnum):
    """What is wrong with a model."""

    IMPORT_FAILED = "ImportFailed"
    """The entrypoint cannot be imported, or raised."""
    FILE_UNREADABLE = "FileUnreadable"
    """The file is missing, has an unknown suffix, or torch cannot read it."""
    FORBIDDEN = "Forbidden"
    """The platform does not allow the entrypoint or the file, or the file does not match its digest."""
    NOT_A_MODEL = "NotAModel"
    """The entrypoint did not return a torch.nn.Module."""
    BAD_INPUT = "BadInput"
    """The model raised on its standard input."""
    BAD_OUTPUT = "BadOutput"
    """The model's answer is not tensors with a leading batch dimension, or contains NaN or infinity."""
    PARTITION_CHANGED = "PartitionChanged"
    """The cut differs from that of the profile: the model has changed since it was profiled."""
    CONTENT_CHANGED = "ContentChanged"
    """The file, the weights or the repository have changed since the model was profiled."""
    NO_SUCH_BLOCKS = "NoSuchBlocks"
    """The model does not have the requested blocks."""


CONTENT_CHANGED_MARK: Final = "(ContentChanged)"
"""In the message of an error of this reason. All that is left of an error in the status of a replica is its message."""


class ModelError(Exception):
    """A model cannot be served or profiled. The message says what is wrong and what to change."""

    def __init__(self, reason: ModelErrorReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type["ModelError"], tuple[ModelErrorReason, str]]:
        return type(self), (self.reason, self.message)
