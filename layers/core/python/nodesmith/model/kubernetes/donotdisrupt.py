"""Annotations that protect a pod or a node from disruption: Karpenter's current and old ones, and Cluster Autoscaler's.

Cluster Autoscaler's other annotations have no meaning here: `safe-to-evict: "true"` and `safe-to-evict-local-volumes`
remove protections that only Cluster Autoscaler has, and `enable-ds-eviction` selects what every drain here does to
DaemonSet pods anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT

OF_PODS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotation on a pod → the value with the meaning of DO_NOT_DISRUPT."""
OF_NODES: Mapping[str, str] = {
    "karpenter.sh/do-not-consolidate": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}


def in_todays_words(annotations: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations with DO_NOT_DISRUPT added if one of `others` implies it. An existing value wins."""
    asked = any(annotations.get(name) == value for name, value in others.items())
    return {DO_NOT_DISRUPT: "true", **annotations} if asked else annotations
