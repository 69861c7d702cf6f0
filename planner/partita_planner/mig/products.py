"""GPU products and their MIG profiles, as data: products.yaml, which a file of the same form may add to or override."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from partita_api.fields.quantity import Quantity
from partita_api.manifests import NotYamlError, explain, parse_yaml
from partita_api.meta import SpecModel
from partita_planner.mig.errors import BadProductsError, UnknownProductError, UnknownSliceError


class Slice(SpecModel):
    """A MIG profile: a kind of GPU instance."""

    name: Annotated[str, Field(pattern=r"^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z.]+)?$")]
    compute: int = Field(ge=1, le=16, description="Compute slices (GPCs).")
    size: int = Field(ge=1, le=16, description="Memory slices that an instance occupies.")
    starts: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        min_length=1, description="Memory slices at which an instance may begin."
    )
    memory: Quantity = Field(description="Usable memory.")

    @property
    def resource_name(self) -> str:
        """The extended resource under which NVIDIA's device plugin offers it (MIG strategy mixed)."""
        return f"nvidia.com/mig-{self.name.replace('+', '.')}"


class Product(SpecModel):
    """A GPU that can be cut into slices."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    compute: int = Field(ge=1, le=16, description="Compute slices of the GPU.")
    memory_slices: int = Field(ge=1, le=16, description="Memory slices of the GPU.")
    slices: tuple[Slice, ...] = Field(min_length=1, max_length=32)

    @model_validator(mode="after")
    def _slices_fit(self) -> Self:
        names = [s.name for s in self.slices]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name} has two profiles of one name; they are {', '.join(names)}")
        for s in self.slices:
            if s.compute > self.compute:
                raise ValueError(f"{s.name} has {s.compute} compute slices, the GPU has {self.compute}")
            if max(s.starts) + s.size > self.memory_slices:
                raise ValueError(
                    f"{s.name} at {max(s.starts)} ends beyond the GPU's {self.memory_slices} memory slices"
                )
        return self

    def slice(self, name: str) -> Slice:
        """The profile of this name. Raises UnknownSliceError."""
        for s in self.slices:
            if s.name == name:
                return s
        there = ", ".join(s.name for s in self.slices)
        raise UnknownSliceError(f"{self.name} has no MIG profile {name!r}; it has {there}")


class ProductTable(SpecModel):
    """All products that are known."""

    products: tuple[Product, ...] = Field(min_length=1)

    @field_validator("products")
    @classmethod
    def _named_once(cls, products: tuple[Product, ...]) -> tuple[Product, ...]:
        names = [p.name for p in products]
        if len(set(names)) < len(names):
            raise ValueError(f"each product may be given once; these are {', '.join(names)}")
        return products

    def product(self, name: str) -> Product:
        """The product of this name. Raises UnknownProductError."""
        for product in self.products:
            if product.name == name:
                return product
        there = ", ".join(p.name for p in self.products)
        raise UnknownProductError(f"product {name!r} is unknown; known are {there}; add others with a file of products")

    def overridden_by(self, other: "ProductTable") -> "ProductTable":
        """These products, those of `other` in place of those of the same name, and its new ones."""
        changed = {p.name: p for p in (*self.products, *other.products)}
        return ProductTable(products=tuple(changed.values()))


def parse_products(text: str, source: str) -> ProductTable:
    """A product table in YAML; `source` names it in errors. Raises BadProductsError."""
    try:
        return ProductTable.model_validate(parse_yaml(text))
    except NotYamlError as error:
        raise BadProductsError(f"{source} is not YAML: {error}") from error
    except ValidationError as error:
        raise BadProductsError(f"{source} is not a valid table of MIG products:\n{explain(error)}") from error


@cache
def known_products() -> ProductTable:
    """The products that come with Partita."""
    return parse_products(files(__package__).joinpath("products.yaml").read_text(encoding="utf-8"), "products.yaml")
