"""What the networks of the traffic application tell apart."""

from typing import Final

DETECTOR_LABELS: Final = ("car", "pedestrian", "truck", "cyclist", "bus", "child", "van", "scooter rider")
VEHICLES: Final = frozenset({"car", "truck", "bus", "van"})
VEHICLE_LABELS: Final = ("hatchback", "saloon", "estate", "pick-up", "lorry", "coach", "minibus", "ambulance")
PERSON_LABELS: Final = ("walking", "standing", "running", "crossing", "waiting", "riding")
