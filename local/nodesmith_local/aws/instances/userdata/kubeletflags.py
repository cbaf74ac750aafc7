"""The kubelet's flags, as fields of its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import Taint
from nodesmith_local.aws.instances.userdata.bootstrap import Unusable, pairs, permitted

_NUMBERS = {
    "max-pods": "maxPods",
    "pods-per-core": "podsPerCore",
    "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
    "image-gc-high-threshold": "imageGCHighThresholdPercent",
    "image-gc-low-threshold": "imageGCLowThresholdPercent",
}
_MAPS = {
    "system-reserved": ("systemReserved", "="),
    "kube-reserved": ("kubeReserved", "="),
    "eviction-hard": ("evictionHard", "<"),
    "eviction-soft": ("evictionSoft", "<"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "="),
}


def kubelet_flags(words: Iterable[str]) -> tuple[dict[str, Any], Mapping[str, str], tuple[Taint, ...]]:
    """Return the configuration, the labels and the taints. Raises Unusable for an unknown flag."""
    config: dict[str, Any] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        if name in _NUMBERS:
            config[_NUMBERS[name]] = int(value)
        elif name in _MAPS:
            field, sign = _MAPS[name]
            config[field] = pairs(value, sign)
        elif name == "cpu-cfs-quota":
            config["cpuCFSQuota"] = value == "true"
        elif name == "node-labels":
            labels |= pairs(value)
        elif name == "register-with-taints":
            taints = tuple(_taint(each) for each in value.split(",") if each)
        else:
            raise Unusable(f"the kubelet has no flag {word!r}")
    return config, permitted(labels), taints


def _taint(text: str) -> Taint:
    key_and_value, _, effect = text.rpartition(":")
    key, _, value = key_and_value.partition("=")
    return Taint(key, effect, value)
