"""Hints of a cluster that is only observed: its shadows are woken in place of the concerns that serve clusters."""

from __future__ import annotations

from nodesmith.model.functions import Concern, Hint
from nodesmith.ports import Hints

_TELLING = frozenset({Concern.PROVISIONING, Concern.LIFECYCLE})
"""The concerns whose hints the shadows get: pods wait for nodes, or nodes have come or gone. Ticks bring the rest."""


class ShadowHints:
    """Sends hints to the shadows of a cluster alone."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Wake the shadows if the change concerns them. Raises Transient."""
        if concern in _TELLING:
            self._hints.send(Concern.SHADOW, hint, delay_seconds)
