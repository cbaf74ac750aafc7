"""Token buckets, the algorithm that limits the rate of EC2 API calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime


class TokenBucket:
    """A bucket of `burst` tokens that gains `refill_per_second` tokens a second until it is full. Starts full.

    `now` returns the time, so a bucket on a faster clock fills faster. Threads may share it.
    """

    def __init__(self, burst: float, refill_per_second: float, now: Callable[[], datetime]) -> None:
        self.burst = burst
        self.refill_per_second = refill_per_second
        self._now = now
        self._tokens = burst
        self._filled_at = now()
        self._lock = threading.Lock()

    def take(self, tokens: float = 1) -> bool:
        """Take that many tokens if the bucket holds them all, and return whether it did."""
        with self._lock:
            self._refill()
            if self._tokens < tokens:
                return False
            self._tokens -= tokens
            return True

    def available(self) -> float:
        """Return the number of tokens in the bucket."""
        with self._lock:
            self._refill()
            return self._tokens

    def _refill(self) -> None:
        now = self._now()
        gained = max(0.0, (now - self._filled_at).total_seconds()) * self.refill_per_second
        self._tokens = min(self.burst, self._tokens + gained)
        self._filled_at = now
