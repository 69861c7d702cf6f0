"""The size classes of a module: modules of fixed size, one of which serves each sample."""

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import TypeVar

from partita_api.session.module import Module, TensorSpec
from partita_api.session.sizes import class_name

Tensor = TypeVar("Tensor", bound=TensorSpec)


@dataclass(frozen=True)
class SizeClass:
    """The samples of a module up to a size, which are padded to it. Plans, profiles and replicas see a module."""

    module: Module
    """What serves them: a module of fixed size."""
    share: float
    """Expected share of the samples of the original module, above 0 and at most 1."""

    @property
    def name(self) -> str:
        """The module's name."""
        return self.module.name


def size_classes(module: Module) -> tuple[SizeClass, ...]:
    """The size classes of a module, the smallest first. A module of fixed size is its only class.

    >>> from partita_api.session.module import ModelSource, TensorSpec
    >>> from partita_api.session.sizes import Size
    >>> words = TensorSpec(shape=(512,), variable_dimension=0)
    >>> bert = Module(
    ...     name="bert", model=ModelSource(file="bert.onnx"), input=words, sizes=(Size(size=64), Size(size=512))
    ... )
    >>> [(each.name, each.module.input.shape, each.share) for each in size_classes(bert)]
    [('bert-s64', (64,), 0.5), ('bert-s512', (512,), 0.5)]
    """
    if module.sizes is None:
        return (SizeClass(module, 1.0),)
    shares = [size.share.fraction if size.share is not None else 1 / len(module.sizes) for size in module.sizes]
    return tuple(
        SizeClass(_of_size(module, size.size), share) for size, share in zip(module.sizes, shares, strict=True)
    )


def served_classes(module: Module, served: Container[str]) -> tuple[SizeClass, ...]:
    """The size classes among `served`, each with the share of the smaller ones that are padded to it.

    The largest class is always served. A module of fixed size is its only class.

    >>> from partita_api.session.module import ModelSource, TensorSpec
    >>> from partita_api.session.sizes import Size
    >>> words = TensorSpec(shape=(512,), variable_dimension=0)
    >>> bert = Module(
    ...     name="bert", model=ModelSource(file="bert.onnx"), input=words, sizes=(Size(size=64), Size(size=512))
    ... )
    >>> [(each.name, each.share) for each in served_classes(bert, {"bert-s512"})]
    [('bert-s512', 1.0)]
    """
    classes = size_classes(module)
    kept: list[SizeClass] = []
    padded = 0.0
    for each in classes:
        padded += each.share
        if each is classes[-1] or each.name in served:
            kept.append(replace(each, share=padded))
            padded = 0.0
    return tuple(kept)


def _of_size(module: Module, size: int) -> Module:
    fixed = {
        "input": None if module.input is None else _tensor_of_size(module.input, size),
        "inputs": None if module.inputs is None else tuple(_tensor_of_size(tensor, size) for tensor in module.inputs),
    }
    return module.model_copy(update={"name": class_name(module.name, size), **fixed, "sizes": None, "size_step": None})


def _tensor_of_size(tensor: Tensor, size: int) -> Tensor:
    if tensor.variable_dimension is None:
        return tensor
    shape = list(tensor.shape)
    shape[tensor.variable_dimension] = size
    return tensor.model_copy(update={"shape": tuple(shape), "variable_dimension": None, "padding": None})
