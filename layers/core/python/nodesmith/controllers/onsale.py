"""The S3 object that lists what NodePools may buy, written when that has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.onsale import on_sale
from nodesmith.errors import Conflict, Transient
from nodesmith.keys import on_sale_key
from nodesmith.model.metricsobjects import write_on_sale
from nodesmith.ports import NONE_THERE, VersionedBlobs

AGAIN_AFTER = timedelta(minutes=1)
"""How long to wait after the object could not be written."""


@dataclass(slots=True)
class OnSaleKeeper:
    """Keeps a cluster's object up to date, from run to run.

    `kept` is the object's version and content. `seen` is what the content was computed from: the computation takes a
    tenth of a second and is skipped if nothing has changed.
    """

    blobs: VersionedBlobs
    cluster: str
    clock: Callable[[], datetime]
    kept: tuple[str, bytes] | None = None
    seen: object = None
    failed_at: datetime | None = None

    def keep(self, inputs: Inputs) -> None:
        """Write the object if its content has changed. After a failure, a later run tries again."""
        now, seen = self.clock(), _basis(inputs)
        if seen == self.seen or (self.failed_at is not None and now - self.failed_at < AGAIN_AFTER):
            return
        try:
            self._write(write_on_sale(on_sale(inputs)))
            self.seen = seen
        except (Transient, Conflict):
            self.failed_at = now

    def _write(self, data: bytes) -> None:
        key, kept = on_sale_key(self.cluster), self.kept
        if kept is None:
            found = self.blobs.read(key, NONE_THERE)
            self.kept = kept = found.tag, found.data or b""
        tag, held = kept
        if held != data:
            self.kept = None  # until the outcome of the write is known
            self.kept = self.blobs.replace(key, data, tag), data


def _basis(inputs: Inputs) -> object:
    """Return everything that what is on sale depends on, without what changes as nodes come and go."""
    ledger, snapshot = inputs.ledger, inputs.snapshot
    closed = frozenset(key for key, backoff in ledger.unavailable.items() if backoff.holds(inputs.now))
    asked = [(each.get("metadata", {}).get("name"), each.get("spec")) for each in snapshot.nodepools]
    asked += [(each.get("metadata", {}).get("name"), each.get("spec")) for each in snapshot.nodeclasses]
    resolved = {
        name: (frozenset(subnet.zone for subnet in status.subnets), status.images)
        for name, status in ledger.nodeclasses.items()
    }
    return inputs.catalog.ref, asked, resolved, closed, frozenset(ledger.shifted(inputs.now))
