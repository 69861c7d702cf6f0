"""The margin of the SLO in planning: goodput of plans with margins other than PPipe's 40 %."""

from collections.abc import Sequence
from statistics import mean

from benchmarks.scheduling.goodput_cases.measure import Effort, Row, say
from benchmarks.scheduling.system_cases.configurations import Configuration, large
from benchmarks.scheduling.system_cases.system import System, planned

MARGINS = (0.1, 0.2, 0.3, 0.4)
PAPER_MARGIN = 0.4
PLANNED_AS = "strict"
PLANNING_SECONDS = 20.0


def margins(effort: Effort) -> Sequence[Row]:
    """Goodput of plans for PPipe's configurations by the margin of the SLO, relative to a margin of 40 %."""
    if effort.data is None:
        say("margins needs --data; left out")
        return []
    configurations = large(effort.data / "ppipe")[:: 3 if effort.quick else 1]
    rows = []
    systems = {margin: [_planned(each, margin) for each in configurations] for margin in MARGINS}
    for process in ("Poisson", "Azure-like"):
        carried = {m: [system.goodput(process, effort) for system in systems[m]] for m in MARGINS}
        for margin, levels in carried.items():
            wins = [level / usual for level, usual in zip(levels, carried[PAPER_MARGIN], strict=True)]
            factors = [level / system.planned for level, system in zip(levels, systems[margin], strict=True)]
            figures = {
                "of_goodput_at_40": round(mean(wins), 3),
                "least": round(min(wins), 3),
                "most": round(max(wins), 3),
            }
            figures["of_planned"] = round(mean(factors), 3)
            rows.append(Row(f"{len(configurations)} configurations, {process}", f"margin {margin:.0%}", figures))
            say(f"  {process}, margin {margin:.0%}: {figures}")
    return rows


def _planned(configuration: Configuration, margin: float) -> System:
    """The configuration with a plan that keeps this share of the SLO free."""
    system = planned(configuration, PLANNED_AS, margin, PLANNING_SECONDS)
    if system is None:
        raise SystemExit(f"{configuration.name}: no plan within {PLANNING_SECONDS:g} s at a margin of {margin:.0%}")
    return system
