"""What nodes cost, and what disrupting their pods costs: the first in USD an hour, the second in evictions.

The cost of an eviction is Karpenter's: 1 for an ordinary pod, more or less by its priority and its deletion cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from nodesmith.model.catalog import Catalog
from nodesmith.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, ZONE
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodes import Node
from nodesmith.model.pods import Pod
from nodesmith.model.resources import Resources
from nodesmith.model.shapes import Shape

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_DELETION_SCALE, _PRIORITY_SCALE = 2.0**27, 2.0**25
_LEAST, _MOST = -10.0, 10.0
_JOB = "Job/"
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def moves(shape: Shape) -> bool:
    """Tell whether pods of a shape need another node when theirs goes: all but those that belong to each node."""
    return not (shape.is_daemon or shape.is_static)


def moving(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Give those of a node's pods that need another node when theirs goes."""
    return tuple(pod for pod in pods if not pod.deleting and moves(pod.shape))


def eviction_cost(shape: Shape) -> float:
    """Give what evicting one pod of a shape costs, from -10 to 10. A deletion cost that is no number counts as 0."""
    text = shape.annotations.get(DELETION_COST, "")
    deletion = int(text) if _INTEGER.fullmatch(text) else 0
    cost = 1.0 + deletion / _DELETION_SCALE + shape.priority / _PRIORITY_SCALE
    return max(_LEAST, min(_MOST, cost))


def harm_of(pods: Iterable[Pod]) -> float:
    """Give what evicting these pods costs. One that costs less than nothing makes up for no other."""
    return sum(max(0.0, eviction_cost(pod.shape)) for pod in pods)


def lost_work_usd(pods: Iterable[Pod], node: Node, price_hourly_usd: float, now: datetime) -> float:
    """Give what it has cost so far that pods of Jobs did on a node, USD: what others do goes on, they begin anew.

    A pod is charged the share of the price that the greater of its requests for cpu and memory is of what the node
    offers, since it was made.
    """
    lost = 0.0
    for pod in pods:
        if pod.shape.owner.startswith(_JOB):
            hours = max(timedelta(0), now - pod.created_at) / timedelta(hours=1)
            lost += hours * price_hourly_usd * _share(pod.shape.requests, node.allocatable)
    return lost


def _share(requests: Resources, offered: Resources) -> float:
    return max(requests.of(name) / max(1, offered.of(name)) for name in ("cpu", "memory"))


def price_of(claim: NodeClaim, node: Node, catalog: Catalog) -> float:
    """Give what a node costs today, USD an hour, whether or not another like it can be had; 0 where nobody knows.

    What is reserved is paid for anyway, and costs nothing.
    """
    labels = node.labels
    sold = labels.get(CAPACITY_TYPE) or claim.capacity_type
    kind, zone = labels.get(INSTANCE_TYPE) or claim.instance_type, labels.get(ZONE) or claim.zone
    if sold == RESERVED:
        return 0.0
    found = (o for o in catalog.offerings.get(kind, ()) if (o.zone, o.capacity_type) == (zone, sold))
    return next((offering.price_hourly_usd for offering in found if not offering.reservation), 0.0)
