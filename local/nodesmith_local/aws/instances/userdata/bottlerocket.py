"""Bottlerocket's settings: TOML that its API reads at the first boot."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.nodeclasses.instancesettings import BOTTLEROCKET
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap, Unusable, permitted, required

_KUBELET = {
    "max-pods": "maxPods",
    "system-reserved": "systemReserved",
    "kube-reserved": "kubeReserved",
    "eviction-hard": "evictionHard",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
    "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
    "cpu-cfs-quota-enforced": "cpuCFSQuota",
}
_PERCENTAGES = {
    "image-gc-high-threshold-percent": "imageGCHighThresholdPercent",
    "image-gc-low-threshold-percent": "imageGCLowThresholdPercent",
}
_RESERVABLE = {"cpu", "memory", "ephemeral-storage"}
_STORAGE = ["apiclient", "ephemeral-storage", "init"]


def bottlerocket_bootstrap(text: str) -> Bootstrap:
    """Read settings. Raises Unusable."""
    try:
        settings = tomllib.loads(text).get("settings", {})
    except ValueError as error:
        raise Unusable(f"the user data is not TOML: {error}") from error
    kubernetes = settings.get("kubernetes", {})
    required(kubernetes, ("cluster-name", "api-server", "cluster-certificate"), "settings.kubernetes")
    for name in ("system-reserved", "kube-reserved"):
        unknown = sorted(kubernetes.get(name, {}).keys() - _RESERVABLE)
        if unknown:
            raise Unusable(f"settings.kubernetes.{name} has unknown keys: {', '.join(unknown)}")
    config = {field: kubernetes[name] for name, field in _KUBELET.items() if name in kubernetes}
    config |= {field: int(kubernetes[name]) for name, field in _PERCENTAGES.items() if name in kubernetes}
    dns = kubernetes.get("cluster-dns-ip")
    if dns:
        config["clusterDNS"] = dns if isinstance(dns, list) else [dns]
    return Bootstrap(
        kubernetes["cluster-name"],
        kubernetes["api-server"],
        config,
        permitted(kubernetes.get("node-labels", {})),
        _taints(kubernetes.get("node-taints", {})),
        "RAID0" if _STORAGE in _commands(settings) else "",
        BOTTLEROCKET,
    )


def _taints(settings: Mapping[str, list[str]]) -> tuple[Taint, ...]:
    split = ((key, taint.rpartition(":")) for key, values in settings.items() for taint in values)
    return tuple(Taint(key, effect, value) for key, (value, _, effect) in split)


def _commands(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return the bootstrap commands that run at each boot."""
    groups = settings.get("bootstrap-commands", {})
    return [command for name in sorted(groups) for command in groups[name].get("commands", ())]
