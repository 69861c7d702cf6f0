"""Settings of MIG: how NVIDIA's mig-manager cuts GPUs into slices for the operator."""

from pydantic import Field

from partita_operator.settings.section import Section
from partita_planner.mig.products import Product


class MigSettings(Section):
    """How the GPUs of pools with spec.mig are cut."""

    enabled: bool = Field(
        default=False,
        description="Cut the GPUs of pools with spec.mig. The operator then labels nodes and deletes pods.",
    )
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
        description="Seconds between a change of the ConfigMap and the first node label. Kubelets deliver the "
        "ConfigMap to mig-manager within about two minutes; mig-manager fails on a configuration it does not know.",
    )
    products: tuple[Product, ...] = Field(
        default=(), description="MIG profiles of further GPU products. They replace known products of the same name."
    )
