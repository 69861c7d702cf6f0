"""Settings of partitioning GPUs into MIG slices by NVIDIA's mig-manager."""

from pydantic import Field

from partita_api.meta import SpecModel
from partita_planner.mig.products import Product


class MigSettings(SpecModel):
    """All settings of partitioning."""

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
        description="Seconds from a change of the ConfigMap to the first label of a node. Kubelets deliver the "
        "ConfigMap to mig-manager within about two minutes; an unknown configuration fails.",
    )
    products: tuple[Product, ...] = Field(
        default=(), description="MIG profiles of further products, or in place of those of known products."
    )
