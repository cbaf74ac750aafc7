"""A ledger that a process has read and may go by for as long as the ledger's mark says that nothing has changed.

Whoever writes marks the ledger first, unless the same process has done so within half a minute (`ledgermarks`). So
where the mark was older than `SETTLED` when the ledger was read, and is still the same, nobody has written since: a
function runs for two minutes at the most, and clocks of functions differ by less than a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.model.ledger.ledger import Ledger

SETTLED = timedelta(minutes=5)
"""How old a mark must be: half a minute, the longest run, and what clocks differ by, with a minute to spare."""
READ_AGAIN = timedelta(minutes=15)
"""A ledger is read whole so often in any case: who mends the table by hand leaves no mark."""


@dataclass(slots=True)
class KeptLedger:
    """The ledger as last read, if its mark was settled by then."""

    _ledger: Ledger | None = None
    _changed: datetime | None = None
    _read_at: datetime | None = None

    def keep(self, ledger: Ledger, changed: datetime | None, now: datetime) -> None:
        """Keep a ledger that has been read whole; `changed` is its mark, read before."""
        self._ledger = None
        if changed is not None and now - changed >= SETTLED:
            self._ledger, self._changed, self._read_at = ledger, changed, now

    def at(self, version: int, changed: datetime | None, now: datetime) -> Ledger | None:
        """Return the ledger if this mark says that it is the same; departures that are over are left out.

        What EC2NodeClasses resolve to is as it was then: a resolution with the same outcome leaves no mark.
        """
        ledger = self._ledger
        if ledger is None or self._read_at is None or now - self._read_at >= READ_AGAIN:
            return None
        if changed is None or (version, changed) != (ledger.version, self._changed):
            return None
        lately = tuple(each for each in ledger.departures if now <= each.kept_until)
        return ledger if lately == ledger.departures else replace(ledger, departures=lately)
