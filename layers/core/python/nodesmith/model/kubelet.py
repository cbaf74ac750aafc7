"""The kubelet's configuration as an EC2NodeClass carries it (`spec.kubelet`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodesmith.model.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """Hashable, so that arithmetic over instance types can be cached by it.

    None means that the user left the setting to the node image. Eviction signals map to a quantity (`100Mi`)
    or a percentage (`5%`), grace periods to a Go duration (`1m30s`).
    """

    cluster_dns: tuple[str, ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    system_reserved: Resources = NOTHING
    kube_reserved: Resources = NOTHING
    eviction_hard: Mapping[str, str] = NO_ITEMS
    eviction_soft: Mapping[str, str] = NO_ITEMS
    eviction_soft_grace_period: Mapping[str, str] = NO_ITEMS
    eviction_max_pod_grace_period: int | None = None
    image_gc_high_threshold_percent: int | None = None
    image_gc_low_threshold_percent: int | None = None
    cpu_cfs_quota: bool | None = None
    other: Mapping[str, object] = FrozenMap()
    """Fields beyond these twelve, as found; only AL2023 can render them."""


DEFAULT_KUBELET = KubeletConfiguration()
