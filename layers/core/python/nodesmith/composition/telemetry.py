"""Telemetry of runs: one structured log line, and optionally counts as CloudWatch metrics (EMF).

Powertools is imported on first use, so that it does not delay a cold start before EC2 is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nodesmith.model.functions import SYMPTOMS, Finding

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

NAMESPACE = "nodesmith"


class Telemetry:
    """Writes logs and metrics of one concern for one cluster. No field may contain a manifest, a token or user data.

    A CloudWatch metric costs 0.30 USD a month, so metrics are written only if `metrics` is True, and have no dimension
    for the cluster. Counts are always in the log. `release` is the deployed release.
    """

    def __init__(self, concern: str, cluster: str, *, metrics: bool = False, release: str = "") -> None:
        self._concern, self._cluster, self._metrics = concern, cluster, metrics
        self._release = release
        self._symptoms: dict[str, str] = {}

    def of(self, cluster: str) -> Telemetry:
        """Return the telemetry of the same concern for a cluster."""
        return Telemetry(self._concern, cluster, metrics=self._metrics, release=self._release)

    @cached_property
    def _log(self) -> Logger:
        from aws_lambda_powertools import Logger

        return Logger(service=self._concern)

    def ran(self, counts: Mapping[str, int], **about: Any) -> None:
        """Log that a run is done. `counts` also become metrics; zeros are left out."""
        self._log.info(
            "done", counts={name: n for name, n in counts.items() if n}, **self._owner_fields, **about
        )
        self._count(counts)

    def rejected(self, message: str) -> None:
        """Log that input was wrong and will not be retried."""
        self._symptoms["Rejected"] = message
        self._log.error("rejected", reason=message, **self._owner_fields)
        self._count({"Rejected": 1})

    def failed(self, error: BaseException) -> None:
        """Log that a cluster's run failed and will be retried, regardless of other clusters' runs."""
        self._log.error("failed", exc_info=error, **self._owner_fields)
        self._count({"Failed": 1})

    def unhealthy(self, finding: Finding, meaning: str) -> None:
        """Log a finding about the deployment."""
        self._log.error(
            "unhealthy",
            cluster=finding.cluster,
            concern=finding.concern,
            kind=finding.kind,
            meaning=meaning,
            detail=finding.message,
        )

    def take_symptoms(self) -> Mapping[str, str]:
        """Return the symptoms since the last call, with their messages."""
        symptoms, self._symptoms = self._symptoms, {}
        return symptoms

    @property
    def _owner_fields(self) -> Mapping[str, Any]:
        """Cluster and release, as fields of each line, since powertools shares one logger between all instances."""
        labels = {"cluster": self._cluster, "release": self._release}
        return {name: value for name, value in labels.items() if value}

    def note(self, name: str, value: float) -> None:
        """Write a metric if metrics are enabled. The unit is seconds if `name` ends with Seconds, else a count."""
        if value and name in SYMPTOMS:
            self._symptoms.setdefault(name, f"{value:g} in one run")
        if self._metrics:
            self._emit(name, value)

    def alarm(self, name: str, value: float) -> None:
        """Write a metric that has an alarm, even if metrics are not enabled."""
        self._emit(name, value)

    def _emit(self, name: str, value: float) -> None:
        from aws_lambda_powertools.metrics import MetricUnit, single_metric

        unit = MetricUnit.Seconds if name.endswith("Seconds") else MetricUnit.Count
        with single_metric(name, unit, value, namespace=NAMESPACE) as metric:
            metric.add_dimension("concern", self._concern)

    def _count(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            if number:
                self.note(name, number)
