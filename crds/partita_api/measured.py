"""What plans are made for instead of what a session's spec declares, because it was measured."""

from typing import Annotated

from pydantic import Field

from partita_api.fields.quantity import Percent, Quantity
from partita_api.meta import StatusModel
from partita_api.session.edge import Edge
from partita_api.session.module import Module, ModuleName
from partita_api.session.sizes import declared_shares

_Share = Annotated[Percent, Field(json_schema_extra={"maxLength": 9})]


class MeasuredEdge(StatusModel):
    """An edge whose answers spread otherwise than declared."""

    source: ModuleName = Field(alias="from", description="The upstream module.")
    target: ModuleName = Field(alias="to", description="The downstream module.")
    fan_out: Quantity = Field(description="Sub-requests that an answer made on average, if it was sent on.")
    share: _Share = Field(description="Share of the answers that were sent on.")
    declared_fan_out: Quantity = Field(description="fanOut.mean of the spec for which this counts instead.")
    declared_share: _Share = Field(description="share of the spec for which this counts instead.")

    @classmethod
    def instead_of(cls, edge: Edge, fan_out: Quantity, share: Percent) -> "MeasuredEdge":
        """What counts for an edge instead of its declared values."""
        return cls.model_validate(
            {
                "from": edge.source,
                "to": edge.target,
                "fan_out": fan_out,
                "share": share,
                "declared_fan_out": edge.fan_out.mean,
                "declared_share": edge.declared_share,
            }
        )

    def is_of(self, edge: Edge) -> bool:
        """Whether it counts for this edge: the declared values are the same as when it was measured."""
        declared = self.source, self.target, self.declared_fan_out, self.declared_share
        return declared == (edge.source, edge.target, edge.fan_out.mean, edge.declared_share)


class MeasuredEndpoint(StatusModel):
    """An endpoint that answers in less time than declared."""

    module: ModuleName = Field(description="The module.")
    millis: int = Field(ge=1, le=600_000, description="99th percentile of the latency of its calls.")
    declared_millis: int = Field(ge=1, le=600_000, description="maxMillis of the spec for which this counts instead.")


class MeasuredSizes(StatusModel):
    """Size classes whose samples have other shares than declared."""

    module: ModuleName = Field(description="The module.")
    shares: tuple[_Share, ...] = Field(max_length=8, description="Shares of its samples, the smallest class first.")
    declared_shares: tuple[_Share, ...] = Field(
        max_length=8, description="Shares of the spec for which these count instead."
    )


class Measured(StatusModel):
    """Measured values. For everything else the spec counts."""

    edges: tuple[MeasuredEdge, ...] = Field(default=(), max_length=128, description="Edges, instead of the spec's.")
    endpoints: tuple[MeasuredEndpoint, ...] = Field(
        default=(), max_length=32, description="Endpoints, instead of the spec's maxMillis."
    )

    sizes: tuple[MeasuredSizes, ...] = Field(
        default=(), max_length=16, description="Shares of size classes, instead of the spec's."
    )

    def of_sizes(self, module: Module) -> MeasuredSizes | None:
        """What counts for a module's size classes: measured while the same was declared. None: the declared shares."""
        declared = declared_shares(module.sizes or ())
        return next(
            (each for each in self.sizes if (each.module, each.declared_shares) == (module.name, declared)), None
        )

    def of_endpoint(self, module: Module) -> MeasuredEndpoint | None:
        """What counts for a module's endpoint: measured while the same was declared. None: the declared time."""
        declared = None if module.endpoint is None else module.endpoint.max_millis
        return next(
            (each for each in self.endpoints if (each.module, each.declared_millis) == (module.name, declared)), None
        )

    def of_edge(self, edge: Edge) -> MeasuredEdge | None:
        """What counts for an edge: measured while the same was declared. None: the declared values."""
        return next((each for each in self.edges if each.is_of(edge)), None)
