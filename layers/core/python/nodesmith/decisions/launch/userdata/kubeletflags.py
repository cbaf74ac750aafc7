"""The kubelet's flags, for families whose bootstrap script takes them as one argument."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.decisions.launch.userdata.starting import Start
from nodesmith.model.apimachinery.resources import format_resources


def kubelet_flags(start: Start) -> str:
    """Return all flags in one text. Double quotes keep each value in one piece when the node splits it."""
    kubelet = start.kubelet
    flags: dict[str, object] = {
        "node-labels": _pairs(start.labels),
        "register-with-taints": ",".join(map(str, start.taints)),
        "max-pods": start.max_pods,
        "pods-per-core": kubelet.pods_per_core,
        "system-reserved": _pairs(format_resources(kubelet.system_reserved)),
        "kube-reserved": _pairs(format_resources(kubelet.kube_reserved)),
        "eviction-hard": _pairs(kubelet.eviction_hard, "<"),
        "eviction-soft": _pairs(kubelet.eviction_soft, "<"),
        "eviction-soft-grace-period": _pairs(kubelet.eviction_soft_grace_period),
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold": kubelet.image_gc_high_threshold_percent,
        "image-gc-low-threshold": kubelet.image_gc_low_threshold_percent,
        "cpu-cfs-quota": kubelet.cpu_cfs_quota,
    }
    return " ".join(f"--{name}={_value(value)}" for name, value in flags.items() if value not in (None, ""))


def _pairs(pairs: Mapping[str, str], sign: str = "=") -> str:
    return ",".join(f"{key}{sign}{pairs[key]}" for key in sorted(pairs))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
