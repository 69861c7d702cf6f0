"""Turns the counters of a core with a queue for each frontend into those of the plan. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from partita_runtime.scheduling.signals import CoreModuleSignals, CorePipelineSignals, CoreSignals, CoreStageSignals

_Key = TypeVar("_Key")
_Share = TypeVar("_Share")


def without_modules(signals: CoreSignals) -> CoreSignals:
    """Only the counters that do not belong to a module."""
    return replace(signals, modules={}, pipelines={}, stages={})


def share_of(signals: CoreSignals, names: Mapping[str, str]) -> CoreSignals:
    """The counters of some modules of the core; `names` maps their names there to those in the plan."""
    return replace(
        signals,
        modules={names[name]: module for name, module in signals.modules.items() if name in names},
        pipelines={(names[m], name): pipeline for (m, name), pipeline in signals.pipelines.items() if m in names},
        stages={
            ref._replace(module=names[ref.module]): stage
            for ref, stage in signals.stages.items()
            if ref.module in names
        },
    )


def without_workers(signals: CoreSignals) -> CoreSignals:
    """The same counters without workers that take batches."""
    return replace(signals, stages={ref: replace(stage, workers=()) for ref, stage in signals.stages.items()})


def added(past: CoreSignals, signals: CoreSignals) -> CoreSignals:
    """The sum of two shares. Counters that do not belong to a module are those of `signals`, the later one."""
    return replace(
        signals,
        modules=_joined(past.modules, signals.modules, _modules),
        pipelines=_joined(past.pipelines, signals.pipelines, _pipelines),
        stages=_joined(past.stages, signals.stages, _stages),
    )


def _joined(
    one: Mapping[_Key, _Share], other: Mapping[_Key, _Share], add: Callable[[_Share, _Share], _Share]
) -> dict[_Key, _Share]:
    return {**one, **{key: add(one[key], share) if key in one else share for key, share in other.items()}}


def _modules(one: CoreModuleSignals, other: CoreModuleSignals) -> CoreModuleSignals:
    return CoreModuleSignals(
        arrived=one.arrived + other.arrived,
        dispatched=one.dispatched + other.dispatched,
        in_time=one.in_time + other.in_time,
        late=one.late + other.late,
        cancelled=one.cancelled + other.cancelled,
        dropped=dict(Counter(one.dropped) + Counter(other.dropped)),
        queued=one.queued + other.queued,
        queueing_micros=one.queueing_micros + other.queueing_micros,
    )


def _pipelines(one: CorePipelineSignals, other: CorePipelineSignals) -> CorePipelineSignals:
    return CorePipelineSignals(
        batches=one.batches + other.batches,
        requests=one.requests + other.requests,
        in_time=one.in_time + other.in_time,
        late=one.late + other.late,
        batch_sizes=dict(sorted((Counter(one.batch_sizes) + Counter(other.batch_sizes)).items())),
    )


def _stages(one: CoreStageSignals, other: CoreStageSignals) -> CoreStageSignals:
    executions = one.executions + other.executions
    link = one if one.transfers > other.transfers else other
    weighted = one.correction * one.executions + other.correction * other.executions
    return CoreStageSignals(
        pool=other.pool,
        workers=tuple(dict.fromkeys((*one.workers, *other.workers))),
        executions=executions,
        predicted_micros=one.predicted_micros + other.predicted_micros,
        actual_micros=one.actual_micros + other.actual_micros,
        correction=weighted / executions if executions else other.correction,
        transfers=one.transfers + other.transfers,
        declared_transfer_micros=one.declared_transfer_micros + other.declared_transfer_micros,
        actual_transfer_micros=one.actual_transfer_micros + other.actual_transfer_micros,
        link_latency_micros=link.link_latency_micros,
        link_bits_per_second=link.link_bits_per_second,
    )
