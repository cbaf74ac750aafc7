"""Metrics for Prometheus under Karpenter's names, told from what the watches see.

`tally` counts what happens, `gauges` measures what is there, `exposition` writes both as text. See docs/metrics.md.
"""

from __future__ import annotations

from nodesmith_forwarder.metrics.exposition import CONTENT_TYPE, written
from nodesmith_forwarder.metrics.gauges import gauges
from nodesmith_forwarder.metrics.tally import Tally

__all__ = ["CONTENT_TYPE", "Tally", "gauges", "written"]
