"""The quality check of a session: samples with the answers that are expected, a metric, and its limit."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.fields.quantity import Quantity, cel_comparison
from partita_api.meta import Rule, SpecModel, StatusModel, Timestamp


class QualityMetric(StrEnum):
    """How answers are compared with the answers that are expected."""

    TOP1 = "Top1"
    EXACT_TEXT = "ExactText"
    CHARACTER_ERROR_RATE = "CharacterErrorRate"
    RECALL = "Recall"
    MEAN_ABSOLUTE_ERROR = "MeanAbsoluteError"
    MAX_ABSOLUTE_ERROR = "MaxAbsoluteError"

    @property
    def is_share(self) -> bool:
        """Whether it is a share of what is right, so that more is better. The others measure errors."""
        return str(self) in _SHARES

    def meets(self, score: float, limit: float) -> bool:
        """Whether a score is within its limit: at least a share, at most an error."""
        return score >= limit if self.is_share else score <= limit


_SHARES: Final = (str(QualityMetric.TOP1), str(QualityMetric.EXACT_TEXT), str(QualityMetric.RECALL))


class SampleSource(SpecModel):
    """Where the samples are."""

    config_map: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="ConfigMap of the session's namespace.",
    )
    key: str = Field(
        default="samples.jsonl",
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description="Key of the ConfigMap. Each line is a JSON object with `inputs` as in a request of the Open "
        "Inference Protocol, and the expected `outputs` as in its answer.",
    )


class Quality(SpecModel):
    """A check that a plan must pass before it serves requests."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "quality.limit of Top1, ExactText and Recall is a share; write 1 or less, such as 0.98",
            lambda quality: not quality.metric.is_share or quality.limit.value <= 1,
            f"!(self.metric in {list(_SHARES)}) || {cel_comparison('self.limit', '<=', '1')}",
        ),
    )

    samples: SampleSource = Field(description="Requests, with the answers that are expected.")
    metric: QualityMetric = Field(
        description="Top1: share of rows with the same largest element, or whose largest element has the expected "
        "index. ExactText: share of equal elements. CharacterErrorRate: characters to insert, delete or replace, by "
        "those expected. Recall: share of the expected elements that are among the first k of their row. "
        "MeanAbsoluteError, MaxAbsoluteError: of the differences of numbers."
    )
    limit: Quantity = Field(
        description="What the score of Top1, ExactText and Recall must reach; what that of the others must not exceed."
    )
    output: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[^/\s]+$",
        description="The output that is compared. Default: the first one that each sample expects.",
    )
    k: int = Field(default=10, ge=1, le=10_000, description="How many elements of a row count for Recall.")


OptionalQuality = Annotated[
    Quality | None,
    Field(
        description="A check on samples. A new plan takes no requests before its answers have passed the check; if "
        "they fail, the current plan keeps serving. Default: no check."
    ),
]


class QualityResult(StatusModel):
    """How a plan's answers to the samples compare with the answers that are expected."""

    question: str = Field(max_length=64, description="Digest of spec.quality and the samples.")
    met: bool = Field(description="Whether the check was passed.")
    metric: QualityMetric = Field(description="The metric.")
    score: Quantity | None = Field(default=None, description="The metric's value; unset if there is none.")
    limit: Quantity = Field(description="Its limit.")
    samples: int = Field(ge=0, description="Number of samples.")
    time: Timestamp = Field(description="When the check ended.")
    message: str = Field(default="", max_length=512, description="Which samples have no usable answer, and why.")
