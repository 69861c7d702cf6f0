"""Expressions of `when` as users write them: parsed once, evaluated for each answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from partita_api.session.cel import terms
from partita_api.session.cel.terms import MAX_DEPTH, Outputs, Term
from partita_api.session.cel.tokens import Token, TokenKind, text_of, tokens
from partita_api.session.cel.values import ExpressionError, Other, Scalar, Type

MAX_CHARACTERS: Final = 512

OutputTypes = Callable[[str], Type]
"""The type of an output by its name or number; raises ExpressionError if there is none."""


def _unknown(_output: str) -> Type:
    return Other.UNKNOWN


@dataclass(frozen=True)
class Expression:
    """A question about the outputs of one answer.

    Evaluating it takes at most one step for each of its words: there are no loops, no functions of others, and no
    regular expressions.

    >>> import numpy as np
    >>> answer = {"label": np.array([2]), "score": np.array([0.1, 0.2, 0.7])}
    >>> Expression.parse("outputs.label[0] == 2 && outputs.score[2] > 0.5").holds(answer.__getitem__)
    True
    """

    text: str
    root: Term

    @classmethod
    def parse(cls, text: str, types: OutputTypes = _unknown) -> Self:
        """The expression that a text is. Raises ExpressionError with what is wrong, and where.

        types: the outputs' types; without them, whether the outputs fit is known only when it is evaluated.
        """
        if len(text) > MAX_CHARACTERS:
            raise ExpressionError(f"an expression has at most {MAX_CHARACTERS} characters, this one {len(text)}")
        root = _Parser(text, types).whole()
        if root.type not in (Scalar.BOOL, Other.UNKNOWN):
            raise ExpressionError(f"the expression is neither true nor false, but of type {root.type}")
        return cls(text, root)

    def holds(self, outputs: Outputs) -> bool:
        """Whether it is true for an answer with these outputs. Raises ExpressionError if it has no value."""
        value = self.root.value(outputs)
        if not isinstance(value, bool):
            raise ExpressionError("its value is neither true nor false")
        return value


_RELATIONS: Final[Mapping[str, Callable[[Term, Term], Term]]] = {
    "==": partial(terms.compared, equals=True),
    "!=": partial(terms.compared, equals=False),
    "in": terms.found_in,
    **{operator: partial(terms.called, operator) for operator in ("<", "<=", ">", ">=")},
}
_OPERATORS: Final[Mapping[str, tuple[int, Callable[[Term, Term], Term]]]] = {
    "||": (1, terms.either),
    "&&": (2, terms.both),
    **{operator: (3, make) for operator, make in _RELATIONS.items()},
    **{operator: (4, partial(terms.called, operator)) for operator in ("+", "-")},
    **{operator: (5, partial(terms.called, operator)) for operator in ("*", "/", "%")},
}
"""How strongly each binds, and what it makes."""
_METHODS: Final = ("contains", "endsWith", "startsWith")


class _Parser:
    """A parser by recursive descent."""

    def __init__(self, text: str, types: OutputTypes) -> None:
        self._types = types
        self._left = tokens(text)
        self._next = next(self._left)
        self._depth = 0

    def whole(self) -> Term:
        """The whole text as one expression."""
        found = self._expression()
        if self._next.kind is not TokenKind.END:
            raise self._error("an operator or the end")
        return found

    def _expression(self) -> Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"the expression has more than {MAX_DEPTH} levels; write a shorter one", self._next)
        found = self._binary(1)
        if question := self._take("?"):
            then = self._expression()
            self._expect(":")
            found = self._made(question, terms.choice, found, then, self._expression())
        self._depth -= 1
        return found

    def _binary(self, least: int) -> Term:
        """Operands with operators between them that bind at least this strongly."""
        found = self._unary()
        while operator := self._take(*(sign for sign, (strength, _) in _OPERATORS.items() if strength >= least)):
            strength, make = _OPERATORS[operator.text]
            found = self._made(operator, make, found, self._binary(strength + 1))
        return found

    def _unary(self) -> Term:
        signs: list[Token] = []
        while sign := self._take("!", "-"):
            if signs and sign.text != signs[0].text:
                raise self._wrong("! and - cannot follow each other; write parentheses", sign)
            signs.append(sign)
        negative = bool(signs) and signs[-1].text == "-" and self._next.kind is TokenKind.NUMBER
        found = self._member(negative)
        for sign in reversed(signs[:-1] if negative else signs):
            found = self._made(sign, partial(terms.called, sign.text), found)
        return found

    def _member(self, negative: bool) -> Term:
        found = self._primary(negative)
        while opened := self._take(".", "["):
            if opened.text == "[":
                found = self._made(opened, terms.element, found, self._expression())
                self._expect("]")
            else:
                name = self._name()
                found = self._made(name, self._method(name), found, *self._arguments(name, int(name.text in _METHODS)))
        return found

    def _method(self, name: Token) -> Callable[..., Term]:
        if name.text == "size":
            return terms.size
        if name.text in _METHODS:
            return partial(terms.called, name.text)
        raise self._unknown_name(name)

    def _primary(self, negative: bool) -> Term:
        token = self._next
        if token.kind is TokenKind.NUMBER:
            return self._number(self._advance(), negative)
        if token.kind is TokenKind.TEXT:
            return terms.constant(text_of(self._advance()))
        if self._take("("):
            found = self._expression()
            self._expect(")")
            return found
        if self._take("["):
            return self._made(token, terms.listed, self._separated("]"))
        if token.kind is not TokenKind.NAME:
            raise self._error("a value")
        self._advance()
        if token.text in ("true", "false"):
            return terms.constant(token.text == "true")
        if token.text == "outputs":
            return self._output()
        if token.text in ("size", "double", "int"):
            made = terms.size if token.text == "size" else partial(terms.called, token.text)
            return self._made(token, made, *self._arguments(token, 1))
        raise self._unknown_name(token)

    def _output(self) -> Term:
        """One output: `outputs.NAME`, `outputs["NAME"]`, or `outputs[0]` by its number."""
        if self._take("."):
            token = self._name()
            name = token.text
        else:
            self._expect("[")
            token = self._advance()
            if token.kind is TokenKind.NUMBER and token.text.isdecimal():
                name = token.text
            elif token.kind is TokenKind.TEXT:
                name = text_of(token)
            else:
                raise self._wrong('write which output, such as outputs.label, outputs["label"] or outputs[0]', token)
            self._expect("]")
        return self._made(token, lambda: terms.output(name, self._types(name)))

    def _number(self, token: Token, negative: bool) -> Term:
        whole = token.text.isdecimal() or token.text.startswith("0x")
        value = int(token.text, 16 if token.text.startswith("0x") else 10) if whole else float(token.text)
        value = -value if negative else value
        if whole and not -(2**63) <= value < 2**63:
            raise self._wrong(f"{token.text} is larger than 64 bits with sign can hold", token)
        if value in (float("inf"), float("-inf")):
            raise self._wrong(f"{token.text} is too large", token)
        return terms.constant(value)

    def _arguments(self, name: Token, count: int) -> list[Term]:
        self._expect("(")
        found = self._separated(")")
        if len(found) != count:
            raise self._wrong(f"{name.text} takes {count} arguments here, not {len(found)}", name)
        return found

    def _separated(self, end: str) -> list[Term]:
        found: list[Term] = []
        while not self._take(end):
            if found:
                self._expect(",")
            found.append(self._expression())
        return found

    # Words

    def _advance(self) -> Token:
        taken = self._next
        if taken.kind is not TokenKind.END:
            self._next = next(self._left)
        return taken

    def _take(self, *texts: str) -> Token | None:
        """The next word if it is one of these signs, or the operator `in`."""
        expected = self._next.kind in (TokenKind.SIGN, TokenKind.NAME) and self._next.text in texts
        return self._advance() if expected else None

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._error(sign)

    def _name(self) -> Token:
        if self._next.kind is not TokenKind.NAME or self._next.text in ("in", "true", "false", "null"):
            raise self._error("a name")
        return self._advance()

    # Errors

    def _made(self, token: Token, make: Callable[..., Term], *operands: object) -> Term:
        try:
            return make(*operands)
        except ExpressionError as error:
            raise self._wrong(str(error), token) from None

    def _unknown_name(self, token: Token) -> ExpressionError:
        return self._wrong(
            f"{token.text} is unknown, or a part of CEL that this has not; read outputs, such as outputs.label[0]",
            token,
        )

    def _error(self, expected: str) -> ExpressionError:
        return self._wrong(f"{expected} is missing before {self._next}", self._next)

    @staticmethod
    def _wrong(problem: str, token: Token) -> ExpressionError:
        return ExpressionError(f"at character {token.position}: {problem}")
