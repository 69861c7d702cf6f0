"""Sub-clusters: the models that share GPUs, where no GPU can hold all models (Symphony, section 4.4).

`balanced_partition` divides hundreds of models, `sharing` lets the models of one plan share GPUs. May import `problem`,
`session`, `solver` and `task`.
"""

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
