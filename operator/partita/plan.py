"""A plan for a session: what it costs, what it uses, and how it looks in a notebook."""

from dataclasses import dataclass
from io import StringIO
from typing import Final

from rich.console import Console

from partita.errors import NoPlanError
from partita.html import html_lines, html_table
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlanSpec
from partita_operator.cli.plan_report import in_words, print_plan, stage_table
from partita_planner.explain.difference import PlanDifference, differences
from partita_planner.problem import NoPlan, Outcome

_WIDTH: Final = 120
"""Columns of the printed table."""


@dataclass(frozen=True, repr=False)
class Plan:
    """How a session is served. It prints as a table, also in notebooks."""

    session: InferenceSession
    spec: PipelinePlanSpec
    """All of the plan, as a PipelinePlan has it."""

    @classmethod
    def of(cls, session: InferenceSession, outcome: Outcome) -> "Plan":
        """The plan that the planner found. Raises NoPlanError if there is none."""
        if isinstance(outcome, NoPlan):
            raise NoPlanError(session.key, outcome)
        return cls(session, outcome.plan)

    @property
    def cost_per_hour(self) -> float:
        """The price of the vGPUs that it allocates."""
        return float(self.spec.cost.allocated_per_hour)

    @property
    def throughput(self) -> float:
        """Requests per second that it can serve."""
        return float(self.spec.throughput)

    @property
    def gpus(self) -> dict[str, int]:
        """Accelerators that it takes, by pool."""
        return self.spec.gpus()

    @property
    def explanation(self) -> str:
        """What limits the plan, and why other plans are worse."""
        return self.spec.solution.explanation

    def changes_to(self, other: "Plan") -> tuple[PlanDifference, ...]:
        """What changes if `other` replaces this plan; empty if nothing does."""
        return tuple(differences(self.spec, other.spec))

    def __str__(self) -> str:
        text = StringIO()
        print_plan(self.session, self.spec, Console(file=text, width=_WIDTH, color_system=None))
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(stage_table(self.session, self.spec)) + html_lines(in_words(self.spec))
