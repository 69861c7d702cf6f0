"""Numbers in specs without floats: Kubernetes quantities (`"0.71"`, `10G`, `24Gi`) and percentages (`"99.9%"`)."""

import re
from decimal import Decimal, InvalidOperation
from typing import Final, Self

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from partita_api.fields.kept_text import KeptText

QUANTITY_PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
PERCENT_PATTERN: Final = r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$"
DECIMALS: Final = 9
"""Digits behind the point, as many as the pattern allows."""
LIMIT: Final = 10**15
"""Numbers from here on have more digits than the pattern allows."""
MAX_LENGTH: Final = 27
"""Characters of the longest quantity. The API server bounds the cost of CEL rules by it."""

_FACTORS: Final = {
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}


class Quantity(KeptText):
    """A non-negative Kubernetes quantity, kept as written. A number is rounded to nine decimals.

    Raises ValueError for what the pattern in the CRDs does not match.
    """

    def __new__(cls, raw: "int | float | Decimal | str") -> Self:
        text = raw if isinstance(raw, str) else _decimal_text(raw)
        if re.fullmatch(QUANTITY_PATTERN, text) is None:
            raise ValueError(
                f"{text!r} is not a quantity: write a number of 0 or more, such as 0.71, 500m, 10G or 24Gi"
            )
        return super().__new__(cls, text)

    @property
    def value(self) -> Decimal:
        """The number that the text stands for."""
        number = self.rstrip("mkKMGTPi")
        return Decimal(number) * _FACTORS.get(self.removeprefix(number), Decimal(1))

    def __float__(self) -> float:
        return float(self.value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": MAX_LENGTH}


class Percent(KeptText):
    """A percentage such as `"99%"` or `"0.5%"`, between 0 % and 100 %.

    Raises ValueError for what the pattern in the CRDs does not match.
    """

    def __new__(cls, raw: str) -> Self:
        text = str(raw)
        if re.fullmatch(PERCENT_PATTERN, text) is None:
            raise ValueError(f"{text!r} is not a percentage: write 0% to 100% with the percent sign, such as 99%")
        return super().__new__(cls, text)

    @property
    def fraction(self) -> float:
        """The percentage as a fraction: 0.99 for 99%."""
        return float(Decimal(self.removesuffix("%")) / 100)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": PERCENT_PATTERN}


def cel_comparison(field: str, operator: str, bound: str) -> str:
    """The CEL expression that compares a field with a quantity. True if the field has no quantity: its schema says so.

    >>> cel_comparison("self.bandwidth", ">=", "1M")
    "(!isQuantity(string(self.bandwidth)) || quantity(string(self.bandwidth)).compareTo(quantity('1M')) >= 0)"
    """
    text = f"string({field})"
    return f"(!isQuantity({text}) || quantity({text}).compareTo(quantity('{bound}')) {operator} 0)"


def _decimal_text(number: "int | float | Decimal") -> str:
    try:
        exact = Decimal(str(number))
    except InvalidOperation:  # no number, such as True
        return str(number)
    if not exact.is_finite() or abs(exact) >= LIMIT:
        return str(number)
    return format(round(exact, DECIMALS).normalize() + 0, "f")  # + 0 turns -0 into 0
