"""The tensors of one sample on its way through the DAG, and the answer made of them. Pure.

`scheduling.requests` decides which sub-requests there are; this module has their inputs and answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.scheduling.requests import SubRequest
from partita_runtime.serving.protocol.interface import Interface, index_name, output_names


class DataflowError(Exception):
    """A module's answer does not fit the modules after it; the message says what is expected."""


class SampleTensors:
    """One sample: its input tensors, and the answers of modules so far."""

    def __init__(self, interface: Interface, request: Mapping[str, Array]) -> None:
        """`request` has the tensors of this sample by name, without a batch dimension."""
        self._interface = interface
        self.request = request
        self._answers: dict[int, tuple[SubRequest, Sequence[Array]]] = {}
        self._rows: dict[int, Mapping[str, Array]] = {}
        """The answers by sub-request, and then by downstream module, or by output name for a sink."""
        self.cut_off: dict[str, int] = {}
        """How many sub-requests beyond `fanOut.max` were left out, by the module that answered with them."""

    def model_input(self, sub: SubRequest) -> Array:
        """The input of a model's sub-request."""
        if not sub.parents:
            return self.request[self._interface.input_name(sub.module)]
        row: Array = self._rows[sub.parents[0]][sub.module][sub.sample]
        return row

    def function_upstream(self, sub: SubRequest) -> dict[str, list[Array]]:
        """The upstream answers for a function's sub-request, by module.

        With one upstream module: the tensors of the answer that it is called for. With several (a join): the tensors
        of all their answers, stacked; the first dimension is the number of answers.
        """
        upstreams = [edge.source for edge in self._interface.session.edges if edge.target == sub.module]
        if len(upstreams) == 1:
            return {upstreams[0]: [*self._tensors(sub.parents[0], sub.module)]}
        joined = {}
        for upstream in upstreams:
            answers = [self._tensors(p, sub.module) for p in sub.parents if self._answers[p][0].module == upstream]
            specs = self._interface.model_outputs.get(upstream, ())
            if answers:
                joined[upstream] = [_stacked(upstream, [a[k] for a in answers]) for k in range(len(answers[0]))]
            else:
                joined[upstream] = [np.empty((0, *spec.shape), NUMPY_DTYPES[spec.dtype]) for spec in specs]
        return joined

    def model_answered(self, sub: SubRequest, outputs: Sequence[Array]) -> dict[str, int]:
        """Store a model's answer; how many samples it has for each downstream model.

        Raises DataflowError if it does not fit them.
        """
        self._answers[sub.sub_id] = (sub, outputs)
        rows = {}
        for target in self._targets(sub.module):
            spec = self._interface.modules[target].input
            whole = spec is not None and outputs[0].shape == spec.shape
            rows[target] = outputs[0][None] if whole else outputs[0]
        return self._take(sub, rows)

    def function_answered(self, sub: SubRequest, answer: Mapping[str, Any]) -> dict[str, int]:
        """Store a function's answer; how many samples it has for each downstream model.

        Raises DataflowError if it names a module that is not downstream, or does not fit a downstream module.
        """
        targets = self._targets(sub.module)
        rows = {name: np.asarray(value) for name, value in answer.items()}
        if targets and not rows.keys() <= {*targets}:
            raise DataflowError(f"{sub.module!r} answered for {sorted(rows)}, but downstream are {sorted(targets)}")
        self._answers[sub.sub_id] = (sub, ())
        return self._take(sub, rows)

    def sink_rows(self, results: Sequence[SubRequest]) -> dict[str, list[Sequence[Array] | Mapping[str, Array]]]:
        """The answers of the sinks in order, by module: a model's tensors, a function's tensors by name."""
        rows: dict[str, list[Sequence[Array] | Mapping[str, Array]]] = {s.name: [] for s in self._interface.sinks}
        for sub in results:
            is_function = self._interface.modules[sub.module].function is not None
            rows[sub.module].append(self._rows[sub.sub_id] if is_function else self._answers[sub.sub_id][1])
        return rows

    def _targets(self, module: str) -> list[str]:
        return [edge.target for edge in self._interface.session.edges if edge.source == module]

    def _tensors(self, sub_id: int, target: str) -> Sequence[Array]:
        """The part of an upstream answer that `target` receives."""
        sub, outputs = self._answers[sub_id]
        if self._interface.modules[sub.module].function is None:
            return outputs
        return [self._rows[sub_id][target]] if target in self._rows[sub_id] else []

    def _take(self, sub: SubRequest, rows: dict[str, Array]) -> dict[str, int]:
        children = {}
        for edge in self._interface.session.edges:
            target = self._interface.modules[edge.target]
            spec = None if target.function is not None else target.input
            if edge.source != sub.module or edge.target not in rows or spec is None:
                continue
            array = rows[edge.target]
            count = len(array) if array.ndim else 0
            if count and (array.shape[1:] != spec.shape or array.dtype != NUMPY_DTYPES[spec.dtype]):
                raise DataflowError(
                    f"{sub.module!r} answered {array.dtype}{list(array.shape)} for {edge.target!r}, "
                    f"which takes {NUMPY_DTYPES[spec.dtype]}{['n', *spec.shape]}"
                )
            children[edge.target] = min(count, edge.fan_out.max)
            if count > edge.fan_out.max:
                self.cut_off[sub.module] = self.cut_off.get(sub.module, 0) + count - edge.fan_out.max
        self._rows[sub.sub_id] = rows
        return children


def answer_of(
    interface: Interface, samples: Sequence[Mapping[str, Sequence[Sequence[Array] | Mapping[str, Array]]]]
) -> dict[str, Array]:
    """The tensors that answer a request, made of `SampleTensors.sink_rows` of each of its samples.

    Raises DataflowError if rows of one tensor differ in shape.
    """
    tensors: dict[str, Array] = {}
    for sink in interface.sinks:
        rows = [row for sample in samples for row in sample[sink.name]]
        if sink.function is None:
            tensors |= _model_tensors(interface, sink.name, [row for row in rows if not isinstance(row, Mapping)])
        else:
            tensors |= _function_tensors(sink.name, [row for row in rows if isinstance(row, Mapping)])
        if sink.name in interface.indexed:
            index = [i for i, sample in enumerate(samples) for _ in sample[sink.name]]
            tensors[index_name(sink.name)] = np.array(index, np.int64)
    return tensors


def _model_tensors(interface: Interface, sink: str, rows: Sequence[Sequence[Array]]) -> dict[str, Array]:
    specs = interface.model_outputs.get(sink, ())
    if not rows:
        empty = [np.empty((0, *spec.shape), NUMPY_DTYPES[spec.dtype]) for spec in specs]
        return dict(zip(output_names(sink, len(specs)), empty, strict=True))
    names = output_names(sink, len(rows[0]))
    return {name: _stacked(sink, [row[k] for row in rows]) for k, name in enumerate(names)}


def _function_tensors(sink: str, rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    names = sorted({name for row in rows for name in row})
    if any(row.keys() != {*names} for row in rows):
        raise DataflowError(f"{sink!r} answered with different names in different calls")
    return {f"{sink}.{name}": _stacked(sink, [row[name] for row in rows]) for name in names}


def _stacked(module: str, rows: Sequence[Array]) -> Array:
    if len(rows) == 1:
        return rows[0][None]
    if len({(row.shape, row.dtype) for row in rows}) > 1:
        raise DataflowError(
            f"{module!r} answered with arrays of different shapes or types, which cannot be one tensor; "
            "pad them, or send each sample in its own request"
        )
    return np.stack(rows)
