"""When a concern has to look again although nothing changes.

Dispatch wakes the concerns of a cluster every few minutes until neither its snapshot nor its ledger has changed for ten
minutes, and from then on each when it says that it is due. So no concern foresees what follows a change within minutes.
None of them may say a later moment than the first at which it would do something; an earlier one costs a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def first_after(now: datetime, moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments that is still to come; None, which is never, where none is."""
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def first(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments; None, which is never, where there is none."""
    return min((moment for moment in moments if moment is not None), default=None)
