"""How the operator has GPUs cut into MIG slices by NVIDIA's mig-manager."""

from pydantic import Field

from partita_api.meta import SpecModel
from partita_planner.mig.products import Product


class MigSettings(SpecModel):
    """Everything that may be set about it."""

    config_map: str = Field(
        default="partita-mig-parted",
        min_length=1,
        max_length=253,
        description="ConfigMap with mig-parted's configurations: migManager.config.name of the GPU Operator.",
    )
    namespace: str = Field(
        default="gpu-operator", min_length=1, max_length=63, description="Namespace of mig-manager and its ConfigMap."
    )
    settle_seconds: int = Field(
        default=150,
        ge=0,
        le=3600,
        description="How long after the ConfigMap has changed the first node is labelled: kubelets bring it to "
        "mig-manager within about two minutes, and a configuration that it does not know yet fails.",
    )
    products: tuple[Product, ...] = Field(
        default=(), description="MIG profiles of products that are not known, or other ones for those that are."
    )
