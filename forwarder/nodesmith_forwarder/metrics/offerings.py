"""What NodePools may buy, with prices: thousands of series that seldom change, so only their text is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nodesmith.model.metricsobjects import OnSale, read_on_sale
from nodesmith.ports import NONE_THERE, VersionedBlobs
from nodesmith.settings import on_sale_key
from nodesmith_forwarder.metrics.exposition import PREFIX

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
        self.text = _written({})

    def read(self) -> None:
        """Read the object if it has changed. Raises Transient, and Rejected once for an unreadable version."""
        found = self._blobs.read(self._key, self._tag, LARGEST_BYTES)
        if found.data is not None:
            self._tag = found.tag
            self.text = _written(read_on_sale(found.data))


def _written(types: OnSale) -> str:
    """Return the text of all series; names and zones contain no characters that need escaping."""
    names = sorted(types)
    offered = [(name, offering) for name in names for offering in types[name].offerings]

    def by_offering(name: str, values: Iterable[float]) -> Iterator[str]:
        for (kind, one), value in zip(offered, values, strict=True):
            labels = f'capacity_type="{one.capacity_type}",instance_type="{kind}",zone="{one.zone}"'
            yield f"{PREFIX}{name}{{{labels}}} {value:.15g}"

    def by_type(name: str, values: Iterable[int]) -> Iterator[str]:
        for kind, value in zip(names, values, strict=True):
            yield f'{PREFIX}{name}{{instance_type="{kind}"}} {value}'

    series = {
        PRICE: by_offering(PRICE, (one.price_hourly_usd for _, one in offered)),
        AVAILABLE: by_offering(AVAILABLE, (one.is_available for _, one in offered)),
        CPU: by_type(CPU, (types[kind].cpu_cores for kind in names)),
        MEMORY: by_type(MEMORY, (types[kind].memory_bytes for kind in names)),
    }
    lines: list[str] = []
    for name, samples in series.items():
        lines += [f"# HELP {PREFIX}{name} {HELP[name]}", f"# TYPE {PREFIX}{name} gauge", *samples]
    return "".join(f"{line}\n" for line in lines)
