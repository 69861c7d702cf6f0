"""How far a session is on its way to serve, and how long the rest takes. Pure."""

from dataclasses import dataclass, field

from partita_api.profile import ProfilingPhase
from partita_devtools.sessions.snapshot import SessionSnapshot
from partita_operator.cli.output import time_left


@dataclass
class ServingProgress:
    """Counts the profiles that are missing, then the replicas of the plan that are up; estimates from their rate."""

    limit_s: float
    """When the wait is given up."""
    _step: str = ""
    _began: tuple[float, int] = field(default=(0.0, 0))
    """When the step began, and what was done then."""
    _profiles: set[tuple[str, str]] = field(default_factory=set)
    """Module and pool of each profile that was ever missing: some are listed only once others are done."""

    def line(self, found: SessionSnapshot, elapsed_s: float) -> str:
        """One line: what is done of all, and the time left, or the time until the limit if nothing tells it."""
        step, done, total = self._count(found)
        if step != self._step:
            self._step, self._began = step, (elapsed_s, done)
        began_s, before = self._began
        left = time_left(done - before, total - before, elapsed_s - began_s)
        counts = f"{done} of {total} {step}" if total else f"waiting for {step}"
        if not left or done == total:
            left = f"at most {max(0.0, self.limit_s - elapsed_s):.0f} s more"
        return f"{counts}, {left}"

    def _count(self, found: SessionSnapshot) -> tuple[str, int, int]:
        missing = {(p.module, p.pool) for p in found.session.status.profiling if p.phase is not ProfilingPhase.GIVEN_UP}
        if missing:
            self._profiles |= missing
            return "profiles", len(self._profiles - missing), len(self._profiles)
        stages = [stage for plan in found.plans for stage in plan.status.stages if stage.desired]
        if stages:
            return "replicas", sum(min(s.ready, s.desired) for s in stages), sum(s.desired for s in stages)
        return "a plan", 0, 0
