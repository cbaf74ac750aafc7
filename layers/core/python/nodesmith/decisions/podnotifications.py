"""Events on pods that do not announce an action: which claim was bought for them, how long they are protected.

Reasons are Karpenter's. A message stays the same while nothing changes, so that the Event is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from nodesmith.decisions.scheduling.existing import nominations
from nodesmith.decisions.termination.protection import protected_for
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.pods import Pod

LATELY = timedelta(minutes=10)
"""How long after the end of a protection an Event is sent."""


def of_pods(claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime) -> Iterator[ObjectEvent]:
    """Yield Events on pods without a node that a claim was bought for, and on annotated pods on nodesmith's nodes."""
    claims = list(claims)
    bought = nominations(claims, now)
    ours = {claim.node_name for claim in claims if claim.node_name}
    for pod in pods:
        if pod.deleting:
            continue
        if not pod.node and pod.key in bought:
            yield ObjectEvent(
                "Pod", pod.key, "Nominated", f"Pod should schedule on: nodeclaim/{bought[pod.key]}"
            )
        value = pod.shape.annotations.get(DO_NOT_DISRUPT)
        if value is not None and value != "true" and pod.node in ours:
            yield from _of_protection(pod, value, now)


def _of_protection(pod: Pod, value: str, now: datetime) -> Iterator[ObjectEvent]:
    span = protected_for(value)
    if span is None:
        why = (
            f"{DO_NOT_DISRUPT} is {value!r} and protects nothing: it must be true, or a duration such as 30m"
        )
        yield ObjectEvent("Pod", pod.key, "InvalidDoNotDisruptAnnotation", why, warning=True)
        return
    if pod.started_at is None:
        return
    until = pod.started_at + span
    if now < until:
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptUntil", f"not disrupted before {format_time(until)}")
    elif now - until < LATELY:
        why = f"no longer protected from disruption since {format_time(until)}: {DO_NOT_DISRUPT} was {value}"
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptGracePeriodElapsed", why)
