"""Cache of a ledger that a process may reuse while the ledger's mark shows that nothing has changed.

Each writer marks the ledger first, unless the same process did so within the last half minute (`ledgermarks`). If the
mark was older than `SETTLED` when the ledger was read, and it has not changed since, nobody has written: a function
runs for at most two minutes, and the clocks of functions differ by less than a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.model.ledger.ledger import Ledger

SETTLED = timedelta(minutes=5)
"""Minimum age of a mark: half a minute, the longest run, and the clock skew, with a minute to spare."""
READ_AGAIN = timedelta(minutes=15)
"""How often a ledger is read completely in any case, because manual edits of the table leave no mark."""


@dataclass(slots=True)
class KeptLedger:
    """The ledger as last read, if its mark was settled at that time."""

    _ledger: Ledger | None = None
    _changed: datetime | None = None
    _read_at: datetime | None = None

    def keep(self, ledger: Ledger, changed: datetime | None, now: datetime) -> None:
        """Keep a ledger that was read completely. `changed` is its mark, which was read before."""
        self._ledger = None
        if changed is not None and now - changed >= SETTLED:
            self._ledger, self._changed, self._read_at = ledger, changed, now

    def at(self, version: int, changed: datetime | None, now: datetime) -> Ledger | None:
        """Return the ledger if its mark is unchanged, else None. Expired departures are omitted.

        The statuses of EC2NodeClasses may be outdated, since a resolution with the same outcome leaves no mark.
        """
        ledger = self._ledger
        if ledger is None or self._read_at is None or now - self._read_at >= READ_AGAIN:
            return None
        if changed is None or (version, changed) != (ledger.version, self._changed):
            return None
        lately = tuple(each for each in ledger.departures if now <= each.kept_until)
        return ledger if lately == ledger.departures else replace(ledger, departures=lately)
