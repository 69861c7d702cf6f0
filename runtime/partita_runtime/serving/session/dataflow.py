"""The tensors of one sample on its way through the DAG, and the answer made of them. Pure.

`scheduling.requests` decides which sub-requests there are; this module has their inputs and answers.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from partita_api.session.cel.values import ExpressionError
from partita_api.session.edge import Edge
from partita_api.session.module import Inputs, Join, NamedInput, TensorSpec, names_of, specs_of
from partita_api.session.output_maps import UnknownOutputError, chosen_outputs
from partita_api.session.when import holds
from partita_runtime.autoscaling.traffic import EdgeDecision, decision_key, edge_key
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.function_server.messages import FunctionAnswer, Rows
from partita_runtime.scheduling.requests import SubRequest
from partita_runtime.serving.protocol.inference import TOKENIZE, outside
from partita_runtime.serving.protocol.interface import EdgeCondition, Interface, answered_name, index_name, output_names
from partita_runtime.serving.protocol.variable_size import dimensions, padded_rows, takes, varying_sizes


class DataflowError(Exception):
    """A module's answer does not fit the modules after it; the message says what is expected."""


class SampleTensors:
    """One sample: its input tensors, and the answers of modules so far."""

    def __init__(self, interface: Interface, request: Mapping[str, Array]) -> None:
        """`request` has the tensors of this sample by name, without a batch dimension."""
        self._interface = interface
        self.request = request
        self._answers: dict[int, tuple[SubRequest, Sequence[Array]]] = {}
        self._rows: dict[int, Mapping[str, tuple[Rows, ...]]] = {}
        """The answers by sub-request, and then by downstream module, with samples for each of its inputs. For a sink
        one array by output name."""
        self.cut_off: dict[str, int] = {}
        """How many sub-requests beyond `fanOut.max` were left out, by the module that answered with them."""
        self.decided: defaultdict[str, int] = defaultdict(int)
        """How often edges that vary got an answer, by `decision_key`; the caller may clear it."""
        self.sent: defaultdict[str, int] = defaultdict(int)
        """How many sub-requests these answers made, by `edge_key`; the caller may clear it."""

    def served_by(self, sub: SubRequest) -> str:
        """The module of the plan that a model's sub-request is for: a size class that its input fits into, or its
        module.
        """
        sized = self._interface.sized.get(sub.module)
        return sub.module if sized is None else sized.served_by(self.model_inputs(sub))

    def size_class(self, sub: SubRequest) -> str | None:
        """The size class of a model's sub-request, with replicas or without; None for a module of fixed size."""
        sized = self._interface.sized.get(sub.module)
        return None if sized is None else sized.class_of(self.model_inputs(sub))

    def model_inputs(self, sub: SubRequest) -> Sequence[Array]:
        """The inputs of a model's sub-request, in the order of its module, and of the size that they have."""
        module = self._interface.modules[sub.module]
        if not sub.parents:
            return [self.request[name] for name in self._interface.input_names(module)]
        return [rows[sub.sample] for rows in self._rows[sub.parents[0]][sub.module]]

    def function_upstream(self, sub: SubRequest) -> dict[str, list[Rows]]:
        """The upstream answers for a function's sub-request, by module.

        With one upstream module, or join Any or First: the tensors of the answer that it is called for. Else, for a
        join: the tensors of all answers, stacked; the first dimension is the number of answers. Those of a model with
        size classes may differ in shape, and are a list.
        """
        upstreams = [edge.source for edge in self._interface.session.edges if edge.target == sub.module]
        if len(upstreams) == 1 or self._interface.modules[sub.module].join is not Join.ALL:
            (parent,) = sub.parents
            return {self._answers[parent][0].module: [*self._tensors(parent, sub.module)]}
        joined: dict[str, list[Rows]] = {}
        for upstream in upstreams:
            answers = [self._tensors(p, sub.module) for p in sub.parents if self._answers[p][0].module == upstream]
            outputs = self._interface.outputs_of(upstream)
            if upstream in self._interface.sized:
                joined[upstream] = [[a[k] for a in answers] for k in range(len(answers[0] if answers else outputs))]
            elif answers:
                joined[upstream] = [_stacked(upstream, [a[k] for a in answers]) for k in range(len(answers[0]))]
            else:
                joined[upstream] = [np.empty((0, *output.shape), NUMPY_DTYPES[output.dtype]) for output in outputs]
        return joined

    def model_answered(self, sub: SubRequest, outputs: Sequence[Array]) -> dict[str, int]:
        """Store a model's answer; how many samples it has for each downstream model, and 0 for modules without it.

        Raises DataflowError if it does not fit them.
        """
        self._answers[sub.sub_id] = (sub, outputs)
        withheld = [
            condition.target
            for condition in self._interface.conditions.get(sub.module, ())
            if not self._holds(sub.module, condition, outputs)
        ]
        edges = [edge for edge in self._interface.session.edges if edge.source == sub.module]
        taken = {edge.target: self._mapped(edge, outputs) for edge in edges if edge.target not in withheld}
        return self._count_sent(sub.module, {**self._take(sub, taken), **dict.fromkeys(withheld, 0)})

    def function_answered(self, sub: SubRequest, answer: FunctionAnswer) -> dict[str, int]:
        """Store a function's answer; how many samples it has for each downstream model.

        Raises DataflowError if it names a module that is not downstream, or does not fit a downstream module.
        """
        targets = self._targets(sub.module)
        if targets and not answer.keys() <= {*targets}:
            raise DataflowError(f"{sub.module!r} answered for {sorted(answer)}, but downstream are {sorted(targets)}")
        rows = {name: self._inputs_of(sub.module, name, value) for name, value in answer.items()}
        self._answers[sub.sub_id] = (sub, ())
        return self._count_sent(sub.module, self._take(sub, rows))

    def sink_rows(self, results: Sequence[SubRequest]) -> dict[str, list[Sequence[Array] | Mapping[str, Array]]]:
        """The answers of the sinks in order, by module: a model's tensors, a function's tensors by name."""
        rows: dict[str, list[Sequence[Array] | Mapping[str, Array]]] = {s.name: [] for s in self._interface.sinks}
        for sub in results:
            is_function = self._interface.modules[sub.module].function is not None
            rows[sub.module].append(self._arrays(sub.sub_id) if is_function else self._answers[sub.sub_id][1])
        return rows

    def _holds(self, module: str, condition: EdgeCondition, outputs: Sequence[Array]) -> bool:
        """Whether an edge takes an answer, which is counted."""
        try:
            found = holds(condition.when, self._interface.output_names.get(module, ()), outputs)
        except ExpressionError as error:
            self.decided[decision_key(module, condition.target, EdgeDecision.FAILED)] += 1
            raise DataflowError(
                f"when of the edge from {module!r} to {condition.target!r} has no value for this answer: {error}"
            ) from None
        decision = EdgeDecision.TAKEN if found else EdgeDecision.NOT_TAKEN
        self.decided[decision_key(module, condition.target, decision)] += 1
        return found

    def _count_sent(self, module: str, children: dict[str, int]) -> dict[str, int]:
        """The sub-requests that an answer makes, by downstream module; those of edges that vary are counted."""
        for edge in self._interface.varying.get(module, ()):
            if edge.when is None:
                self.decided[decision_key(module, edge.target, EdgeDecision.TAKEN)] += 1
            runs_once = self._interface.modules[edge.target].function is not None
            self.sent[edge_key(module, edge.target)] += children.get(edge.target, int(runs_once))
        return children

    def _targets(self, module: str) -> list[str]:
        return [edge.target for edge in self._interface.session.edges if edge.source == module]

    def _tensors(self, sub_id: int, target: str) -> Sequence[Array]:
        """The part of an upstream answer that `target` receives."""
        sub, outputs = self._answers[sub_id]
        if self._interface.modules[sub.module].function is None:
            return outputs
        arrays = self._arrays(sub_id)
        return [arrays[target]] if target in arrays else []

    def _arrays(self, sub_id: int) -> Mapping[str, Array]:
        """What a function has answered for clients and other functions: `function_answered` allows them no lists."""
        return {name: rows for name, (rows, *_) in self._rows[sub_id].items() if isinstance(rows, np.ndarray)}

    def _mapped(self, edge: Edge, outputs: Sequence[Array]) -> tuple[Rows, ...]:
        """The outputs of a model that are the inputs of the next one, each with a leading dimension for samples."""
        inputs = self._interface.modules[edge.target].takes
        if inputs is None:
            return (outputs[0],)
        names = self._interface.output_names.get(edge.source, ())
        try:
            chosen = chosen_outputs(edge, inputs, names, len(outputs))
        except UnknownOutputError as error:
            raise DataflowError(str(error)) from None
        pairs = zip(chosen, specs_of(inputs), strict=True)
        return tuple([outputs[k][None] if takes(spec, outputs[k].shape) else outputs[k] for k, spec in pairs])

    def _inputs_of(self, module: str, target: str, value: Rows | Mapping[str, Rows]) -> tuple[Rows, ...]:
        """What a function answered for a downstream module, or as an output of its own: samples for each input."""
        taker = self._interface.modules[target] if target in self._targets(module) else None
        inputs = None if taker is None or taker.function is not None else taker.takes
        names = () if inputs is None else names_of(inputs)
        if isinstance(value, Mapping) != bool(names) or (isinstance(value, Mapping) and value.keys() != {*names}):
            given = f"a mapping of {', '.join(sorted(value))}" if isinstance(value, Mapping) else "one array"
            expected = f"a mapping of {', '.join(names)}" if names else "one array"
            raise DataflowError(f"{module!r} answered {given} for {target!r}; return {expected}")
        if isinstance(value, Mapping):
            return tuple(value[name] for name in names)
        if isinstance(value, list) and inputs is None:
            raise DataflowError(_differ(module))
        return (value,)

    def _take(self, sub: SubRequest, rows: Mapping[str, tuple[Rows, ...]]) -> dict[str, int]:
        children = {}
        for edge in self._interface.session.edges:
            target = self._interface.modules[edge.target]
            inputs = None if target.function is not None else target.takes
            if edge.source != sub.module or edge.target not in rows or inputs is None:
                continue
            count = _samples(sub.module, edge.target, inputs, rows[edge.target])
            self._check_vocabularies(sub.module, edge.target, inputs, rows[edge.target])
            children[edge.target] = min(count, edge.fan_out.max)
            if count > edge.fan_out.max:
                self.cut_off[sub.module] = self.cut_off.get(sub.module, 0) + count - edge.fan_out.max
        self._rows[sub.sub_id] = rows
        return children

    def _check_vocabularies(self, module: str, target: str, inputs: Inputs, rows: Sequence[Rows]) -> None:
        """Raises DataflowError if numbers select no rows of the target's tables."""
        vocabularies = self._interface.vocabularies_of(target)
        for samples, spec, count in zip(rows, specs_of(inputs), vocabularies, strict=False):
            arrays = samples if isinstance(samples, list) else [samples]
            wrong = [number for array in arrays if (number := outside(array, count)) is not None] if count else []
            if wrong:
                name = f" as {spec.name!r}" if isinstance(spec, NamedInput) else ""
                raise DataflowError(
                    f"{module!r} answered {wrong[0]} for {target!r}{name}, whose model has rows 0 to {count - 1} only; "
                    f"{TOKENIZE}"
                )


def _samples(module: str, target: str, inputs: Inputs, rows: Sequence[Rows]) -> int:
    """How many samples a module answered for another one. Raises DataflowError if they do not fit its inputs."""
    counts = [len(samples) if isinstance(samples, list) or samples.ndim else 0 for samples in rows]
    if len(set(counts)) > 1:
        raise DataflowError(f"{module!r} answered {counts} samples for inputs of {target!r}; return as many for each")
    for samples, spec in zip(rows, specs_of(inputs), strict=True):
        if counts[0] and (wrong := _unfit(samples, spec)):
            name = f" as {spec.name!r}" if isinstance(spec, NamedInput) else ""
            raise DataflowError(
                f"{module!r} answered {wrong} for {target!r}{name}, which takes "
                f"{NUMPY_DTYPES[spec.dtype]}[{', '.join(['n', *dimensions(spec)])}]"
            )
    if uneven := _uneven(rows, specs_of(inputs)):
        raise DataflowError(
            f"{module!r} answered a sample for {target!r} with inputs of sizes {uneven}; those that vary need one size"
        )
    return counts[0]


def _uneven(rows: Sequence[Rows], specs: Sequence[TensorSpec]) -> str:
    """The sizes of the first sample whose inputs that vary differ in size; empty if there is none."""
    if sum(spec.variable_dimension is not None for spec in specs) < 2:
        return ""
    for sample in zip(*rows, strict=True):
        sizes = varying_sizes(specs, [array.shape for array in sample])
        if len(sizes) > 1:
            return " and ".join(map(str, sorted(sizes)))
    return ""


def _unfit(samples: Rows, spec: TensorSpec) -> str:
    """The first of the samples that does not fit an input, with its batch dimension; empty if all fit."""
    shapes = [(len(samples), *row.shape) for row in samples] if isinstance(samples, list) else [samples.shape]
    dtypes = [row.dtype for row in samples] if isinstance(samples, list) else [samples.dtype]
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if not takes(spec, shape[1:]) or dtype != NUMPY_DTYPES[spec.dtype]:
            return f"{dtype}{list(shape)}"
    return ""


def answer_of(
    interface: Interface,
    samples: Sequence[Mapping[str, Sequence[Sequence[Array] | Mapping[str, Array]]]],
    left_out: Sequence[Collection[str]],
    modules: Collection[str],
) -> dict[str, Array]:
    """The tensors of an answer that are of these modules, made of `SampleTensors.sink_rows` of each of its samples.

    `left_out` has the modules of each sample of which an answer is missing.
    Raises DataflowError if rows of one tensor differ in shape.
    """
    tensors: dict[str, Array] = {}
    for sink in (sink for sink in interface.sinks if sink.name in modules):
        rows = [row for sample in samples for row in sample[sink.name]]
        if sink.function is None:
            tensors |= _model_tensors(interface, sink.name, [row for row in rows if not isinstance(row, Mapping)])
        else:
            tensors |= _function_tensors(sink.name, [row for row in rows if isinstance(row, Mapping)])
        if sink.name in interface.indexed:
            index = [i for i, sample in enumerate(samples) for _ in sample[sink.name]]
            tensors[index_name(sink.name)] = np.array(index, np.int64)
    for name in (name for name in interface.optional if name in modules):
        tensors[answered_name(name)] = np.array([name not in missing for missing in left_out])
    return tensors


def _model_tensors(interface: Interface, sink: str, rows: Sequence[Sequence[Array]]) -> dict[str, Array]:
    if not rows:
        outputs = interface.outputs_of(sink)
        empty = [np.empty((0, *(max(0, n) for n in o.shape)), NUMPY_DTYPES[o.dtype]) for o in outputs]
        return dict(zip(output_names(sink, len(outputs)), empty, strict=True))
    names = output_names(sink, len(rows[0]))
    if sink in interface.sized:
        return {name: padded_rows([row[k] for row in rows]) for k, name in enumerate(names)}
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
        raise DataflowError(_differ(module))
    return np.stack(rows)


def _differ(module: str) -> str:
    return (
        f"{module!r} answered with arrays of different shapes or types, which cannot be one tensor; "
        "pad them, or send each sample in its own request"
    )
