"""Kubernetes label selectors: which nodes belong to a pool, and which pools a session may use."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.meta import Rule, SpecModel

_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[str, Field(max_length=316, pattern=rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_NAME}$")]
"""What Kubernetes accepts as key of a label or of an annotation, such as nvidia.com/gpu.product."""
LabelValue = Annotated[str, Field(max_length=63, pattern=rf"^({_NAME})?$")]
"""What Kubernetes accepts as value of a label."""


class SelectorOperator(StrEnum):
    """How a requirement compares a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"

    @property
    def takes_values(self) -> bool:
        """Whether the operator compares the label with values."""
        return self in (SelectorOperator.IN, SelectorOperator.NOT_IN)


class LabelSelectorRequirement(SpecModel):
    """One requirement on a label, as in metav1.LabelSelectorRequirement."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "operators In and NotIn need values; Exists and DoesNotExist take none",
            lambda requirement: requirement.operator.takes_values == bool(requirement.values),
            "(self.operator == 'In' || self.operator == 'NotIn') == (has(self.values) && size(self.values) > 0)",
        ),
    )

    key: LabelKey = Field(description="The label.")
    operator: SelectorOperator = Field(description="In, NotIn, Exists or DoesNotExist.")
    values: tuple[LabelValue, ...] = Field(
        default=(), max_length=32, description="The values that In and NotIn compare the label with."
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        match self.operator:
            case SelectorOperator.IN:
                return labels.get(self.key) in self.values
            case SelectorOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case SelectorOperator.EXISTS:
                return self.key in labels
            case SelectorOperator.DOES_NOT_EXIST:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case SelectorOperator.IN:
                return f"{self.key} in ({','.join(self.values)})"
            case SelectorOperator.NOT_IN:
                return f"{self.key} notin ({','.join(self.values)})"
            case SelectorOperator.EXISTS:
                return self.key
            case SelectorOperator.DOES_NOT_EXIST:
                return f"!{self.key}"


class LabelSelector(SpecModel):
    """A metav1.LabelSelector: an object is selected if it meets all requirements. An empty selector selects all.

    `str()` gives the form that the API server and `kubectl -l` read.

    >>> selector = LabelSelector(match_labels={"gpu": "l4"})
    >>> str(selector), selector.matches({"gpu": "l4", "zone": "a"}), selector.matches({})
    ('gpu=l4', True, False)
    """

    match_labels: dict[LabelKey, LabelValue] = Field(
        default={}, max_length=16, description="Labels and the values that they must have."
    )
    match_expressions: tuple[LabelSelectorRequirement, ...] = Field(
        default=(), max_length=16, description="Further requirements on labels."
    )

    @property
    def is_empty(self) -> bool:
        """Whether it has no requirement; it then selects every object."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return self.match_labels.items() <= labels.items() and all(e.matches(labels) for e in self.match_expressions)

    def __str__(self) -> str:
        equal = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        return ",".join((*equal, *map(str, self.match_expressions)))
