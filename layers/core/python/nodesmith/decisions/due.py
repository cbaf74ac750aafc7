"""When a concern must look again even if nothing changes.

Dispatch wakes the concerns of a cluster every few minutes until neither its snapshot nor its ledger has changed for ten
minutes, and from then on each concern only when it is due. Concerns therefore need not foresee what happens within
minutes of a change. A concern must not report a later moment than the first at which it would do something; an earlier
one only costs a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def first_after(now: datetime, moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments that is after `now`; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def first(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None), default=None)
