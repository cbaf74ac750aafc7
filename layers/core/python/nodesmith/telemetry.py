"""What a run says of itself: one structured log line, and counts as CloudWatch metrics (EMF) where they are wanted.

Powertools is imported when there is something to say: a cold start must not pay for it before EC2 is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nodesmith.model.functions.health import SYMPTOMS, Finding

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

NAMESPACE = "nodesmith"


class Telemetry:
    """The voice of one concern in one cluster. No field may carry a manifest, a token or user data.

    A metric of CloudWatch costs 0.30 USD a month, so metrics are written only where `metrics` asks for them, and have
    no dimension for the cluster. Counts are in the log in any case. `release` names what is deployed.
    """

    def __init__(self, concern: str, cluster: str, *, metrics: bool = False, release: str = "") -> None:
        self._concern, self._cluster, self._metrics = concern, cluster, metrics
        self._release = release
        self._symptoms: dict[str, str] = {}

    def of(self, cluster: str) -> Telemetry:
        """Return the voice of the same concern in a cluster."""
        return Telemetry(self._concern, cluster, metrics=self._metrics, release=self._release)

    @cached_property
    def _log(self) -> Logger:
        from aws_lambda_powertools import Logger

        return Logger(service=self._concern)

    def ran(self, counts: Mapping[str, int], **about: Any) -> None:
        """Say that a run is done. `counts` become metrics; what is zero is left out."""
        self._log.info("done", counts={name: n for name, n in counts.items() if n}, **self._whose, **about)
        self._count(counts)

    def rejected(self, message: str) -> None:
        """Say that input was wrong and is not tried again."""
        self._symptoms["Rejected"] = message
        self._log.error("rejected", reason=message, **self._whose)
        self._count({"Rejected": 1})

    def failed(self, error: BaseException) -> None:
        """Say that a run has failed and is tried again, where other clusters' runs in the same batch have not."""
        self._log.error("failed", exc_info=error, **self._whose)
        self._count({"Failed": 1})

    def unwell(self, finding: Finding, meaning: str) -> None:
        """Say what is wrong with the deployment."""
        self._log.error(
            "unwell",
            cluster=finding.cluster,
            concern=finding.concern,
            kind=finding.kind,
            meaning=meaning,
            said=finding.said,
        )

    def take_symptoms(self) -> Mapping[str, str]:
        """Return what somebody should look at, if it recurs, of what was said since the last time."""
        taken, self._symptoms = self._symptoms, {}
        return taken

    @property
    def _whose(self) -> Mapping[str, Any]:
        """Name both in fields of their own: powertools shares one logger between all instances of a service."""
        named = {"cluster": self._cluster, "release": self._release}
        return {name: value for name, value in named.items() if value}

    def note(self, name: str, value: float) -> None:
        """Write one figure as a metric, where metrics are wanted: seconds where its name ends so, else a count."""
        if value and name in SYMPTOMS:
            self._symptoms.setdefault(name, f"{value:g} in one run")
        if self._metrics:
            self._emit(name, value)

    def alarm(self, name: str, value: float) -> None:
        """Write one figure as a metric on which there is an alarm."""
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
