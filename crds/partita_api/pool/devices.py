"""Accelerators that a pool takes by Dynamic Resource Allocation (DRA, resource.k8s.io/v1)."""

import json
from typing import Annotated

from pydantic import Field

from partita_api.meta import SpecModel

AttributeValue = Annotated[str, Field(max_length=64)]


class Devices(SpecModel):
    """Devices that a driver offers in ResourceSlices. Each pod with an accelerator claims one of them."""

    device_class_name: str = Field(
        min_length=1, max_length=253, description="The DeviceClass of the claims, such as gpu.nvidia.com."
    )
    driver: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="The driver that offers the devices. Default: the name of the DeviceClass.",
    )
    attributes: dict[str, AttributeValue] = Field(
        default={},
        max_length=8,
        description="Attributes that a device must have, such as profile: 1g.10gb. Attributes whose value is not a "
        "string cannot be selected. A name without a domain is one of the driver's.",
    )

    @property
    def driver_name(self) -> str:
        """The driver that offers the devices."""
        return self.driver or self.device_class_name

    @property
    def expression(self) -> str:
        """The CEL expression that selects the devices, for a claim.

        A device without an attribute is not selected; reading an attribute that is absent would be an error.
        """
        terms = [f"device.driver == {json.dumps(self.driver_name)}"]
        for qualified, value in sorted(self.attributes.items()):
            domain, name = self.qualified(qualified)
            attributes = f"device.attributes[{json.dumps(domain)}]"
            terms += [f"{json.dumps(name)} in {attributes}", f"{attributes}[{json.dumps(name)}] == {json.dumps(value)}"]
        return " && ".join(terms)

    def qualified(self, attribute: str) -> tuple[str, str]:
        """Domain and name of an attribute."""
        domain, _, name = attribute.rpartition("/")
        return domain or self.driver_name, name
