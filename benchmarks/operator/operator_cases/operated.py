"""The process that is measured: the operator around the doubles.

Arguments: kubeconfig, metrics port, health port, the engine's folder.
"""

import asyncio
import logging
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.operator.operator_cases.account import NAME, NAMESPACE
from benchmarks.operator.operator_cases.engine import operator_doubles

from partita_operator.handlers.operator import run_operator
from partita_operator.settings.model import HealthSettings, LeaderElectionSettings, MetricsSettings, OperatorSettings


async def main() -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.WARNING)
    kubeconfig, metrics_port, health_port, engine = sys.argv[1:]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    engines, runner, solver = operator_doubles(Path(engine))
    settings = OperatorSettings(
        leader_election=LeaderElectionSettings(namespace=NAMESPACE, name=NAME),
        metrics=MetricsSettings(port=int(metrics_port)),
        health=HealthSettings(port=int(health_port)),
    )
    await run_operator(settings, Path(kubeconfig), engines=engines, runner=runner, solver=solver, stop=stop)


if __name__ == "__main__":
    asyncio.run(main())
