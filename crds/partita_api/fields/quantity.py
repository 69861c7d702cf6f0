"""Numbers in specs without floats: Kubernetes quantities (`"0.71"`, `10G`, `24Gi`) and percentages (`"99.9%"`)."""

from decimal import Decimal, InvalidOperation
from typing import Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

QUANTITY_PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
PERCENT_PATTERN: Final = r"^[0-9]{1,3}(\.[0-9]{1,4})?%$"

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


class Quantity(str):
    """A non-negative Kubernetes quantity, kept as written.

    Accepts integers, floats and strings; raises ValueError for anything that Kubernetes would not read as
    a non-negative quantity.
    """

    def __new__(cls, raw: "int | float | Decimal | str") -> Self:
        text = format(Decimal(str(raw)).normalize(), "f") if not isinstance(raw, str) else raw.strip()
        self = super().__new__(cls, text)
        if self.value < 0:
            raise ValueError(f"quantity {text!r} must not be negative")
        return self

    @property
    def value(self) -> Decimal:
        """The number that the text stands for."""
        suffix = next((s for s in sorted(_FACTORS, key=len, reverse=True) if self.endswith(s)), "")
        try:
            return Decimal(self.removesuffix(suffix)) * _FACTORS.get(suffix, Decimal(1))
        except InvalidOperation:
            raise ValueError(
                f"{str(self)!r} is not a quantity; write a number such as 0.71, 500m, 10G or 24Gi"
            ) from None

    def __float__(self) -> float:
        return float(self.value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN}


class Percent(str):
    """A percentage such as `"99%"` or `"0.5%"`, between 0 % and 100 %."""

    def __new__(cls, raw: str) -> Self:
        self = super().__new__(cls, str(raw).strip())
        if not self.endswith("%"):
            raise ValueError(f"{str(self)!r} is not a percentage; write it with a percent sign, such as 99%")
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"{str(self)!r} is outside 0% to 100%")
        return self

    @property
    def fraction(self) -> float:
        """The percentage as a fraction: 0.99 for 99%."""
        try:
            return float(Decimal(self.removesuffix("%")) / 100)
        except InvalidOperation:
            raise ValueError(f"{str(self)!r} is not a percentage; write it such as 99%") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": PERCENT_PATTERN}
