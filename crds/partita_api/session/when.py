"""Edges with `when`: rules, and what the outputs of the upstream module say about the expression."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from partita_api.meta import Rule
from partita_api.session.cel.expression import Expression
from partita_api.session.cel.values import ExpressionError, ListType, Scalar, Tensor, Type
from partita_api.session.edge import Edge
from partita_api.session.module import DType, TensorSpec
from partita_api.session.output_maps import in_words, output_number

_ELEMENTS: Final[Mapping[DType, Scalar]] = {
    **dict.fromkeys((DType.FP16, DType.FP32, DType.FP64), Scalar.DOUBLE),
    DType.BOOL: Scalar.BOOL,
    DType.BYTES: Scalar.STRING,
}
"""What elements are in expressions, if not integers."""

WHEN_RULES: Final = (
    Rule(
        "when reads the outputs of a model or an endpoint, so from must be one; a function leaves a module out of its "
        "answer instead",
        lambda spec: not _conditional(spec) & {module.name for module in spec.modules if module.function is not None},
        "!has(self.edges) || self.edges.all(e, !has(e.when) || "
        "!self.modules.exists(m, m.name == e.from && has(m.__function__)))",
    ),
)
"""Rules of a session."""


def holds(expression: Expression, names: Sequence[str], outputs: Sequence[Tensor]) -> bool:
    """Whether an expression is true for one answer of a model. Raises ExpressionError if it has no value.

    names: the model's own names of its outputs; empty if they are unknown.
    """
    return expression.holds(lambda output: outputs[_number(output, names, len(outputs))])


def when_problems(edge: Edge, names: Sequence[str], outputs: Sequence[TensorSpec]) -> Iterator[str]:
    """What is wrong with the expression of an edge for a model with these outputs: a sentence with the fix."""

    def type_of(output: str) -> Type:
        spec = outputs[_number(output, names, len(outputs))]
        return ListType(_ELEMENTS.get(spec.dtype, Scalar.INT), spec.shape)

    try:
        Expression.parse(edge.when or "true", type_of)
    except ExpressionError as error:
        yield f"when of the edge from {edge.source} to {edge.target} does not fit the outputs of {edge.source}: {error}"


def _number(output: str, names: Sequence[str], count: int) -> int:
    number = output_number(output, names, count)
    if number is None:
        raise ExpressionError(f"there is no output {output}: the outputs are {in_words(names, count)}")
    return number


def _conditional(spec: Any) -> set[str]:
    return {edge.source for edge in spec.edges if edge.when is not None}
