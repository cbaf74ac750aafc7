"""Schema of `spec.kubelet` of an EC2NodeClass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.quantities import LONGEST_QUANTITY
from nodesmith.model.schema.fields import INT32, Array, Boolean, Integer, Map, Object, Quantity, Rule, Text

_SIGNALS = Text(
    enum=(
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    )
)
_THRESHOLD = Text(
    pattern=r"^(([0-9]{1,2}(\.[0-9]{1,2})?|100(\.0{1,2})?)%|\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?)$",
    example="5% or 100Mi",
    rules=(
        Rule("", f"must have at most {LONGEST_QUANTITY} characters", lambda t: len(t) <= LONGEST_QUANTITY),
    ),
)
_GRACE = Text(pattern=r"^([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+$", example="1m30s")


def _reserved(whom: str) -> Map:
    keys = Text(enum=("cpu", "memory", "ephemeral-storage", "pid"))
    return Map(Quantity(), f"Resources reserved for {whom}.", keys=keys, max_entries=len(keys.enum))


def _signals(of: Text, doc: str) -> Map:
    return Map(of, doc, keys=_SIGNALS, max_entries=len(_SIGNALS.enum))


def _same_signals(kubelet: Mapping[str, Any]) -> bool:
    return set(kubelet.get("evictionSoft", ())) == set(kubelet.get("evictionSoftGracePeriod", ()))


def _thresholds_are_ordered(kubelet: Mapping[str, Any]) -> bool:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    return high is None or low is None or bool(high > low)


KUBELET = Object(
    {
        "clusterDNS": Array(Text(), "IP addresses of the cluster's DNS. Defaults to the kube-dns service."),
        "maxPods": Integer("Maximum number of pods on a node.", 0, INT32),
        "podsPerCore": Integer("Maximum number of pods per CPU on a node. Not for Bottlerocket.", 0, INT32),
        "systemReserved": _reserved("the operating system"),
        "kubeReserved": _reserved("the processes of Kubernetes"),
        "evictionHard": _signals(_THRESHOLD, "Thresholds of signals at which pods are evicted immediately."),
        "evictionSoft": _signals(
            _THRESHOLD, "Thresholds of signals at which pods are evicted after a grace period."
        ),
        "evictionSoftGracePeriod": _signals(_GRACE, "Grace period of each soft signal."),
        "evictionMaxPodGracePeriod": Integer(
            "Maximum grace period of a soft eviction, in seconds.", 0, INT32
        ),
        "imageGCHighThresholdPercent": Integer(
            "Disk usage, in percent, at which image garbage collection starts.", 0, 100
        ),
        "imageGCLowThresholdPercent": Integer(
            "Disk usage, in percent, at which image garbage collection stops.", 0, 100
        ),
        "cpuCFSQuota": Boolean("Whether CPU limits are enforced."),
    },
    "Settings of the kubelet. AL2023 supports any field of the kubelet's configuration file; other AMI families "
    "support only the listed fields.",
    open=True,
    rules=(
        Rule(
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
            "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
            _thresholds_are_ordered,
            field="imageGCHighThresholdPercent",
        ),
        Rule(
            "(!has(self.evictionSoft) || self.evictionSoft.all(k, has(self.evictionSoftGracePeriod) && "
            "k in self.evictionSoftGracePeriod)) && (!has(self.evictionSoftGracePeriod) || "
            "self.evictionSoftGracePeriod.all(k, has(self.evictionSoft) && k in self.evictionSoft))",
            "each signal of evictionSoft needs an entry in evictionSoftGracePeriod, and vice versa",
            _same_signals,
        ),
        Rule(
            "",
            "leave it out and set taints in the NodePool",
            lambda kubelet: "registerWithTaints" not in kubelet,
            field="registerWithTaints",
        ),
    ),
)
