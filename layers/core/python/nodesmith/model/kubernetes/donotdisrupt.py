"""Annotations that ask for a pod or a node to be left in place: Karpenter's of today and of old, Cluster Autoscaler's.

Of Cluster Autoscaler's others, `safe-to-evict: "true"` and `safe-to-evict-local-volumes` lift protections that only it
has, and `enable-ds-eviction` chooses what every drain here does to pods of DaemonSets: they have no meaning here.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT

OF_PODS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotation → the value by which a pod asks for what DO_NOT_DISRUPT says today."""
OF_NODES: Mapping[str, str] = {
    "karpenter.sh/do-not-consolidate": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}


def in_todays_words(annotations: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    """Add DO_NOT_DISRUPT where one of the others says it; what says it itself stays, whatever they say."""
    asked = any(annotations.get(name) == value for name, value in others.items())
    return {DO_NOT_DISRUPT: "true", **annotations} if asked else annotations
