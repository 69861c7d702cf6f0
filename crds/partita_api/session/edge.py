"""The edges of an application's DAG: to which modules the answer of a module goes, and when."""

from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field

from partita_api.fields.quantity import Percent, Quantity
from partita_api.meta import Rule, SpecModel, is_unset
from partita_api.session.cel.expression import MAX_CHARACTERS, Expression
from partita_api.session.module import ModuleName


def _parsed(text: str) -> str:
    return Expression.parse(text).text


WhenText = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_parsed)]
"""A CEL expression over the outputs of the upstream module. The API server takes any text: it cannot parse CEL."""

MAX_FAN_OUT: Final = 256


class FanOut(SpecModel):
    """How many sub-requests one upstream answer makes on an edge."""

    mean: Quantity = Field(default=Quantity("1"), description='Average number, to plan rates with, such as "1.5".')
    max: int = Field(
        default=1, ge=1, le=MAX_FAN_OUT, description="Most sub-requests taken from one answer; more are left out."
    )


class Edge(SpecModel):
    """The answer of one module goes to another."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "share is of the answers for which when is true, and needs when; for a fan-out, set fanOut.mean",
            lambda edge: edge.share is None or edge.when is not None,
            "!has(self.share) || has(self.when)",
        ),
    )

    source: ModuleName = Field(alias="from", description="The upstream module.")
    target: ModuleName = Field(alias="to", description="The downstream module.")
    fan_out: FanOut = Field(default=FanOut(), description="How many sub-requests one answer creates.")
    when: WhenText | None = Field(
        default=None,
        exclude_if=is_unset,
        description="Send only answers for which this CEL expression over the outputs of the upstream model or "
        "endpoint is true, such as outputs.label[0] == 2. Default: all.",
    )
    share: Percent | None = Field(
        default=None,
        exclude_if=is_unset,
        description='Expected share of the answers for which `when` is true, to plan rates with, such as "20%". '
        "Default: 100%.",
    )
    outputs: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(min_length=1, max_length=256)]] | None = (
        Field(
            default=None,
            alias="map",
            min_length=1,
            max_length=8,
            exclude_if=is_unset,
            description="Between models or endpoints: the upstream output for each input of the downstream one, by its "
            "name or number (from 0). An input without a name is called input. Default: the first output is the input.",
        )
    )

    @property
    def names_outputs(self) -> bool:
        """Whether it says which outputs of the upstream model it means, by its map or its condition."""
        return self.outputs is not None or self.when is not None

    @property
    def declared_share(self) -> Percent:
        """The share of the answers that are sent on, as declared."""
        return Percent("100%") if self.share is None else self.share

    @property
    def mean(self) -> float:
        """How many sub-requests one upstream answer creates on average, with those that are not sent."""
        return float(self.fan_out.mean) * self.declared_share.fraction
