"""The offerings that NodePools may buy, with prices: thousands of series that seldom change, kept only as text."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith.keys import on_sale_key
from nodesmith.model.metrics.metrics import Labels, labelled
from nodesmith.model.metrics.objects import OfferingOnSale, OnSale, read_on_sale
from nodesmith.ports import NONE_THERE, VersionedBlobs
from nodesmith_forwarder.metrics.exposition import Family, exposition_text

LARGEST_BYTES = 2**20
_OFFERING = "cloudprovider_instance_type_offering_"
PRICE, AVAILABLE = f"{_OFFERING}price_estimate", f"{_OFFERING}available"
CPU, MEMORY = "cloudprovider_instance_type_cpu_cores", "cloudprovider_instance_type_memory_bytes"
HELP = {
    PRICE: "The hourly price of each instance type that NodePools may buy, by zone and capacity type.",
    AVAILABLE: "Whether EC2 had the offering at the last request: 0 for a while after it had none.",
    CPU: "The vCPUs of instance types that NodePools may buy.",
    MEMORY: "The memory of instance types that NodePools may buy.",
}


class OfferingMetrics:
    """The series of one cluster as text, from the object that was last read."""

    def __init__(self, blobs: VersionedBlobs, cluster: str) -> None:
        self._blobs, self._key = blobs, on_sale_key(cluster)
        self._tag = NONE_THERE
        self.text = exposition_text(_families({}))

    def read(self) -> None:
        """Read the object if it has changed. Raises Transient, and Rejected once for an unreadable version."""
        blob = self._blobs.read(self._key, self._tag, LARGEST_BYTES)
        if blob.data is not None:
            self._tag = blob.tag
            self.text = exposition_text(_families(read_on_sale(blob.data)))


def _families(types: OnSale) -> Iterator[Family]:
    """Yield the families one at a time, since each has thousands of series."""
    names = sorted(types)
    offered = [
        (_offering_labels(name, offering), offering) for name in names for offering in types[name].offerings
    ]
    prices = {labels: offering.price_hourly_usd for labels, offering in offered}
    yield Family(PRICE, "gauge", HELP[PRICE], prices)
    available = {labels: float(offering.is_available) for labels, offering in offered}
    yield Family(AVAILABLE, "gauge", HELP[AVAILABLE], available)
    cores = {labelled(instance_type=name): float(types[name].cpu_cores) for name in names}
    yield Family(CPU, "gauge", HELP[CPU], cores)
    memory = {labelled(instance_type=name): float(types[name].memory_bytes) for name in names}
    yield Family(MEMORY, "gauge", HELP[MEMORY], memory)


def _offering_labels(instance_type: str, offering: OfferingOnSale) -> Labels:
    return labelled(capacity_type=offering.capacity_type, instance_type=instance_type, zone=offering.zone)
