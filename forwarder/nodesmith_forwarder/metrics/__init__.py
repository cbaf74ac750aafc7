"""Metrics for Prometheus under Karpenter's names, from what the watches see and the functions report.

`tally` counts events, `gauges` measures the current state, `functions` reads what only the functions know, and
`exposition` writes it all as text. See docs/metrics.md.
"""

from __future__ import annotations

from nodesmith_forwarder.metrics.exposition import CONTENT_TYPE, exposition_text
from nodesmith_forwarder.metrics.functions import FunctionMetrics
from nodesmith_forwarder.metrics.gauges import gauges
from nodesmith_forwarder.metrics.tally import Tally

__all__ = ["CONTENT_TYPE", "FunctionMetrics", "Tally", "exposition_text", "gauges"]
