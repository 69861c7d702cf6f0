"""Which devices of DRA drivers are a pool's, and how many of them can be allocated at the same time."""

from collections.abc import Collection

from partita_api.pool.devices import Devices
from partita_operator.reconcile.world import DeviceOffer, OfferedDevice


def allocatable_devices(claimed: Devices, offer: DeviceOffer, nodes: Collection[str]) -> list[OfferedDevice]:
    """Devices of these nodes that the pool's claims may get, all at the same time.

    Devices that share counters, such as the possible slices of a GPU, exclude each other: they are taken in the order
    of the driver as long as the counters suffice. The slices of one profile take equal, consecutive parts, so that this
    is the most that fit.
    """
    required = {claimed.qualified(name): value for name, value in claimed.attributes.items()}
    left = dict(offer.counters)
    taken = []
    for device in offer.devices:
        suitable = device.node in nodes and not device.tainted and required.items() <= device.attributes.items()
        if suitable and all(left.get(counter, 0) >= amount for counter, amount in device.counters.items()):
            for counter, amount in device.counters.items():
                left[counter] -= amount
            taken.append(device)
    return taken
