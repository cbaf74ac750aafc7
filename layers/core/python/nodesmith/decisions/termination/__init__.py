"""Termination: from the decision that a node goes to the moment nothing is left of it.

`beginning` tells whose end has begun, `protection` which pods may not be evicted, `draining` which go next, `steps`
what is to be done about each claim.
"""

from __future__ import annotations

from nodesmith.decisions.termination.beginning import to_end
from nodesmith.decisions.termination.steps import next_steps, to_check

__all__ = ["next_steps", "to_check", "to_end"]
