"""The reference answer of a session: its whole models, run in this process."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.size_classes import size_classes
from partita_runtime.execution.executor import Array
from partita_runtime.function_server.messages import answer_arrays
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.partitioned_model import WholeModel
from partita_runtime.models.source import load_model, resolve_entrypoint
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.requests import RequestGraph, SubRequest
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.dataflow import SampleTensors, answer_of

Forward = Callable[[Sequence[Array]], Sequence[Array]]
"""A model as a function of the tensors of one sample, without a batch dimension, to its output tensors."""


class WholeModels:
    """The models of a session, uncut, without batching and at full precision, and its functions."""

    def __init__(self, session: InferenceSessionSpec) -> None:
        """Load every model. Raises ModelError for a model that cannot be loaded or a missing function, and for an
        endpoint: nothing here calls other servers.
        """
        if elsewhere := [module.name for module in session.modules if module.endpoint is not None]:
            raise ModelError(
                ModelErrorReason.NOT_A_MODEL,
                f"another server answers for {', '.join(elsewhere)}, so there is no model to compare with; "
                "use a session without endpoints",
            )
        self._session = session
        whole = {
            m.name: WholeModel(load_model(m.model), m.takes)
            for m in session.modules
            if m.model is not None and m.takes is not None
        }
        self.models: Mapping[str, Forward] = {
            each.name: partial(_forward, whole[m.name])
            for m in session.modules
            if m.name in whole
            for each in size_classes(m)
        }
        """By name; of a model with size classes, by the names of these."""
        asked = {edge.source for edge in session.edges if edge.names_outputs}
        self._interface = Interface(
            "", session, {}, {name: whole[name].output_names() for name in asked & whole.keys()}
        )
        self._functions = {
            m.name: (resolve_entrypoint(m.function.entrypoint), m.function.kwargs)
            for m in session.modules
            if m.function is not None
        }

    def answer(self, request: Mapping[str, Array], models: Mapping[str, Forward] | None = None) -> dict[str, Array]:
        """The answer's tensors by name for one sample, given by input name and without a batch dimension.

        `models` replaces models of the same name.
        """
        models = {**self.models, **(models or {})}
        graph = RequestGraph(self._session, SchedulingPlan(name="", modules=()))
        sample = SampleTensors(self._interface, request)

        def run(sub: SubRequest) -> dict[str, int]:
            if sub.module not in self._functions:
                inputs = sample.model_inputs(sub)
                if (sized := self._interface.sized.get(sub.module)) is not None:
                    (inputs,) = sized.padded([inputs])
                return sample.model_answered(sub, models[sample.served_by(sub)](inputs))
            function, kwargs = self._functions[sub.module]
            answer = function(sample.request, sample.function_upstream(sub), **kwargs)
            return sample.function_answered(sub, answer_arrays(answer))

        due = graph.start(0, 0, {root.name: 1 for root in self._interface.roots})
        while due:
            sub = due.pop(0)
            due += graph.completed(sub.sub_id, run(sub))
        outcome = graph.finished(0)
        assert outcome is not None  # every sub-request was answered
        rows = sample.sink_rows(outcome.results)
        return answer_of(self._interface, [rows], [outcome.left_out], self._interface.answering)


@torch.no_grad()
def _forward(model: WholeModel, sample: Sequence[Array]) -> Sequence[Array]:
    return [tensor[0].numpy() for tensor in model(*(torch.from_numpy(np.array(array))[None] for array in sample))]
