"""Where Kubernetes places the pods of a template: node affinity, pod affinity, tolerations and topology spread."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.fields.label_selector import LabelKey, LabelSelector, LabelValue
from partita_api.meta import Rule, SpecModel

MAX_TERMS: Final = 8
MAX_TOLERATIONS: Final = 16

TopologyKey = Annotated[str, Field(min_length=1, max_length=316)]
Weight = Annotated[int, Field(ge=1, le=100)]


class NodeSelectorOperator(StrEnum):
    """How a requirement compares a node's label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"

    @property
    def takes_values(self) -> bool:
        """Whether the operator compares the label with values."""
        return self not in (NodeSelectorOperator.EXISTS, NodeSelectorOperator.DOES_NOT_EXIST)


class NodeSelectorRequirement(SpecModel):
    """One requirement on a node's label."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "operators In, NotIn, Gt and Lt need values; Exists and DoesNotExist take none",
            lambda requirement: requirement.operator.takes_values == bool(requirement.values),
            "(self.operator in ['In', 'NotIn', 'Gt', 'Lt']) == (has(self.values) && size(self.values) > 0)",
        ),
    )

    key: LabelKey = Field(description="The label.")
    operator: NodeSelectorOperator = Field(description="In, NotIn, Exists, DoesNotExist, Gt or Lt.")
    values: tuple[LabelValue, ...] = Field(default=(), max_length=16, description="The values to compare with.")


class NodeSelectorTerm(SpecModel):
    """Nodes that meet all these requirements."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = Field(
        min_length=1, max_length=MAX_TERMS, description="Requirements on the node's labels."
    )


class NodeSelector(SpecModel):
    """Nodes that meet one of the terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(
        min_length=1, max_length=MAX_TERMS, description="A node must meet one of these."
    )


class PreferredNodes(SpecModel):
    """Nodes that are preferred."""

    weight: Weight = Field(description="Weight of the preference, 1 to 100.")
    preference: NodeSelectorTerm = Field(description="The nodes.")


class NodeAffinity(SpecModel):
    """On which nodes the pods run."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="The pods run only on these nodes."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] = Field(
        default=(), max_length=MAX_TERMS, description="The pods run on these nodes if they can."
    )


class PodAffinityTerm(SpecModel):
    """Pods of the same namespace, and the area around them."""

    label_selector: LabelSelector = Field(description="The pods, by their labels.")
    topology_key: TopologyKey = Field(description="Label of the nodes of one area, such as kubernetes.io/hostname.")


class WeightedPodAffinityTerm(SpecModel):
    """A preference for an area."""

    weight: Weight = Field(description="Weight of the preference, 1 to 100.")
    pod_affinity_term: PodAffinityTerm = Field(description="The pods and the area.")


class PodAffinity(SpecModel):
    """Near which pods the pods run, or far from which."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = Field(
        default=(), max_length=MAX_TERMS, description="All of these must hold."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = Field(
        default=(), max_length=MAX_TERMS, description="These hold if possible."
    )


class Affinity(SpecModel):
    """Near what the pods run."""

    node_affinity: NodeAffinity = Field(default=NodeAffinity(), description="Nodes to run on.")
    pod_affinity: PodAffinity = Field(default=PodAffinity(), description="Pods to run near.")
    pod_anti_affinity: PodAffinity = Field(default=PodAffinity(), description="Pods to stay away from.")


class TolerationOperator(StrEnum):
    """How a toleration compares a taint."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(SpecModel):
    """A taint that the pods tolerate."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "operator Exists takes no value",
            lambda toleration: toleration.operator is TolerationOperator.EQUAL or not toleration.value,
            "!has(self.operator) || self.operator == 'Equal' || !has(self.value) || self.value == ''",
        ),
        Rule(
            "a toleration without key tolerates all taints, and needs operator Exists",
            lambda toleration: bool(toleration.key) or toleration.operator is TolerationOperator.EXISTS,
            "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
        ),
        Rule(
            "tolerationSeconds needs effect NoExecute",
            lambda toleration: toleration.toleration_seconds is None or toleration.effect is TaintEffect.NO_EXECUTE,
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        ),
    )

    key: str = Field(default="", max_length=316, description="Key of the taint. Empty, with Exists: all taints.")
    operator: TolerationOperator = Field(default=TolerationOperator.EQUAL, description="Exists, or Equal to value.")
    value: str = Field(default="", max_length=63, description="Value of the taint.")
    effect: TaintEffect | None = Field(default=None, description="Effect of the taint. Default: all effects.")
    toleration_seconds: int | None = Field(
        default=None, ge=0, le=86_400, description="How long a running pod tolerates a NoExecute taint."
    )


class WhenUnsatisfiable(StrEnum):
    """What happens to a pod that cannot be spread."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class TopologySpreadConstraint(SpecModel):
    """How the pods are spread over areas."""

    max_skew: int = Field(ge=1, le=1000, description="Most pods that one area has more than another one.")
    topology_key: TopologyKey = Field(
        description="Label of the nodes of one area, such as topology.kubernetes.io/zone."
    )
    when_unsatisfiable: WhenUnsatisfiable = Field(description="DoNotSchedule or ScheduleAnyway.")
    label_selector: LabelSelector = Field(description="The pods that are counted, by their labels.")
    min_domains: int | None = Field(
        default=None, ge=1, le=1000, description="Least number of areas; only with DoNotSchedule."
    )
