"""Metrics on pods that are drained from nodes, under Karpenter's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith.model.commands import Evict
from nodesmith.model.karpenter.nodeclaimconditions import DELETED
from nodesmith.model.kubernetes.evictions import Evicted, Eviction
from nodesmith.model.metrics import Metrics

_FORCEFUL = "Forceful Termination"
"""Karpenter's reason if a node ends only because it was deleted."""


def note_drained(metrics: Metrics, commands: Iterable[Evict], answers: Mapping[str, Eviction]) -> None:
    """Count the pods that end because of these evictions, by the cause of their node's termination."""
    for command in commands:
        said = [answers.get(pod.pod) for pod in command.pods]
        leaving = sum(isinstance(answer, Evicted) and not answer.before for answer in said)
        if leaving:
            cause = command.claim.cause
            metrics.count("pods_drained_total", leaving, reason=_FORCEFUL if cause == DELETED else cause)
