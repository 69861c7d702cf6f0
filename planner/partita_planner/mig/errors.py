"""Errors in MIG input; each message says the fix."""


class MigError(ValueError):
    """Invalid MIG input."""


class UnknownProductError(MigError):
    """No product of this name is known."""


class UnknownSliceError(MigError):
    """The product has no such MIG profile."""


class BadProductsError(MigError):
    """A product table that cannot be used."""


class BadDemandError(MigError):
    """A load, a distribution or a measurement that cannot be used."""


class BadConfigurationError(MigError):
    """A configuration that mig-parted would refuse, or that does not fit the GPU."""
