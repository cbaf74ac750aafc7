"""CapacityQuotas for tests, and what planned nodes may take of quotas, computed apart from the product's own sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.decisions.provisioning import PlannedNode
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_HOUR
from nodesmith_local.backends.othercrds import other_definitions
from tests.builders import nodepool_manifest

USD = "nodesmith.dev/usd-per-hour"
(QUOTA_CRD,) = other_definitions()


def quota_manifest(
    name: str = "gold",
    limits: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    expressions: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a CapacityQuota; by default it allows three nodes of any kind."""
    selector = {"matchLabels": dict(labels or {}), "matchExpressions": [dict(each) for each in expressions]}
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityQuota",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "selector": {part: value for part, value in selector.items() if value},
            "limits": {"resources": dict(limits if limits is not None else {"nodes": "3"})},
        },
    }


def dollar_pool(limit: str, name: str = "default", **fields: Any) -> dict[str, Any]:
    """Return a NodePool with a limit in dollars an hour."""
    pool = nodepool_manifest(name, **fields)
    pool["metadata"]["annotations"] = {LIMIT_USD_PER_HOUR: limit}
    return pool


def dearest_usd(nodes: Iterable[PlannedNode]) -> float:
    """Return what nodes cost an hour at most, whichever of their offerings EC2 chooses."""
    return sum(max(override.price_hourly_usd for override in node.request.overrides) for node in nodes)
