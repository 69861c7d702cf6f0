"""MIG: the slices to cut GPUs into, so that they serve a load and fit the GPUs (PARIS, section IV-B).

May import `solver`.
"""

import lazy_loader

# The names are those of the stub, `__init__.pyi`; the module behind a name is imported with its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
