"""Termination: from the decision that a node must go until nothing is left of it.

`beginning` finds the claims whose termination begins, `evictions` the pods that go next and those that must not be
evicted, and `steps` the commands for each claim.
"""

from __future__ import annotations

from nodesmith.decisions.termination.beginning import to_end
from nodesmith.decisions.termination.steps import next_steps, to_check

__all__ = ["next_steps", "to_check", "to_end"]
