"""What a run says of itself: one structured log line, and counts as CloudWatch metrics (EMF, in the log as well).

Powertools is imported when there is something to say: a cold start must not pay for it before EC2 is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

NAMESPACE = "nodesmith"


class Telemetry:
    """The voice of one concern in one cluster. No field may carry a manifest, a token or user data."""

    def __init__(self, concern: str, cluster: str) -> None:
        self._concern, self._cluster = concern, cluster

    @cached_property
    def _log(self) -> Logger:
        from aws_lambda_powertools import Logger

        return Logger(service=self._concern, cluster=self._cluster)

    def ran(self, counts: Mapping[str, int], **about: Any) -> None:
        """Say that a run is done. `counts` become metrics; what is zero is left out."""
        self._log.info("done", counts={name: n for name, n in counts.items() if n}, **about)
        self._count(counts)

    def rejected(self, message: str) -> None:
        """Say that input was wrong and is not tried again."""
        self._log.error("rejected", reason=message)
        self._count({"Rejected": 1})

    def note(self, name: str, value: float) -> None:
        """Write one figure as a metric: seconds where its name ends so, else a count."""
        from aws_lambda_powertools.metrics import MetricUnit, single_metric

        unit = MetricUnit.Seconds if name.endswith("Seconds") else MetricUnit.Count
        with single_metric(name, unit, value, namespace=NAMESPACE) as metric:
            if self._cluster:  # CloudWatch drops a metric whose dimension is empty
                metric.add_dimension("cluster", self._cluster)
            metric.add_dimension("concern", self._concern)

    def _count(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            if number:
                self.note(name, number)
