"""Label keys and values of old, and those that people write by mistake: what each is read as today.

Facts: the keys of Karpenter 0.4 to 0.37, of EKS managed node groups and EKS Auto Mode, and of what blog posts show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nodesmith.model.apimachinery.labels import (
    ALIASES,
    ARCH,
    AWS_DOMAIN,
    AWS_KEYS,
    CAPACITY_TYPE,
    NODEPOOL,
    OS,
    PROVISIONER_NAME,
)
from nodesmith.model.apimachinery.spelling import did_you_mean

CATEGORY = f"{AWS_DOMAIN}/instance-category"
_COUNTS = frozenset(f"{AWS_DOMAIN}/instance-{name}" for name in ("cpu", "memory", "family", "size"))
_DOTTED = ("family", "size", "cpu", "memory", "gpu.name", "gpu.manufacturer", "gpu.count", "gpu.memory")
_AUTO_MODE = "eks.amazonaws.com/instance-"
_INSTANCE = f"{AWS_DOMAIN}/instance-"
_CATEGORIES = re.compile(r"[a-z]{1,3}")

MISTAKEN: Mapping[str, str] = {
    **{
        f"{AWS_DOMAIN}/instance.{name}": f"{AWS_DOMAIN}/instance-{name.replace('.', '-')}" for name in _DOTTED
    },
    **{f"{_AUTO_MODE}{key.removeprefix(_INSTANCE)}": key for key in AWS_KEYS if key.startswith(_INSTANCE)},
    "node.kubernetes.io/instance-family": f"{AWS_DOMAIN}/instance-family",
    "node.kubernetes.io/instance-size": f"{AWS_DOMAIN}/instance-size",
    "node.k8s.aws/capacityType": CAPACITY_TYPE,
    "node.k8s.aws/capacity-type": CAPACITY_TYPE,
    "eks.amazonaws.com/capacityType": CAPACITY_TYPE,
}
"""Keys that no node of Karpenter's has, and what was meant."""
RENAMED: Mapping[str, str] = {**ALIASES, PROVISIONER_NAME: NODEPOOL}
"""Keys that were right once."""
WITHOUT_EQUIVALENT: Mapping[str, str] = {
    f"{AWS_DOMAIN}/instance-pods": "how many pods a node takes is no label of it; maxPods bounds it",
    f"{AWS_DOMAIN}/instance-ami-id": "images are chosen by the EC2NodeClass, in amiSelectorTerms",
    f"{AWS_DOMAIN}/instance-accelerator-memory": "accelerators are chosen by their name or count",
}
_VALUES: Mapping[str, Mapping[str, str]] = {
    CAPACITY_TYPE: {
        "ondemand": "on-demand",
        "on-demand": "on-demand",
        "spot": "spot",
        "reserved": "reserved",
    },
    ARCH: {"x86-64": "amd64", "amd64": "amd64", "x64": "amd64", "aarch64": "arm64", "arm64": "arm64"},
    OS: {"linux": "linux", "windows": "windows"},
}
"""Every value that such a key has today, by every spelling that has been seen, in lower case with dashes."""


class Reading(NamedTuple):
    """What a key and its values are read as; `why` is empty where they are right, or unknown and left as they are."""

    key: str
    values: tuple[str, ...]
    why: str = ""
    renamed: bool = False
    """True where all that is amiss is a key that was right once."""


def read_label(key: str, values: tuple[str, ...]) -> Reading:
    """Read a label key with the values that it is to have or not to have."""
    known = MISTAKEN.get(key) or RENAMED.get(key, key)
    wanted = tuple(_value(known, value) for value in values)
    if known in _COUNTS and values and all(map(_is_category, values)):
        known = CATEGORY
    reasons = []
    if known != key:
        reasons.append(f"is read as {known}")
    if wanted != values:
        reasons.append(f"{', '.join(values)} as {', '.join(wanted)}")
    renamed = key in RENAMED and wanted == values
    why = ", ".join(reasons)
    return Reading(known, wanted, why if known != key or not why else f"has {why}", renamed)


def _value(key: str, value: str) -> str:
    return _VALUES.get(key, {}).get(value.lower().replace("_", "-"), value)


def _is_category(value: str) -> bool:
    """Tell a category (c, hpc) from a number, a family, which has one in it, and a size, which is longer."""
    return _CATEGORIES.fullmatch(value) is not None


def unknown_key(key: str) -> str:
    """Return what to do instead of a key of AWS's domains that no node has; empty for all other keys."""
    hint = WITHOUT_EQUIVALENT.get(key, "")
    if key.startswith(_AUTO_MODE) and key not in MISTAKEN:
        hint = f"EKS Auto Mode has it, and nothing here is like it{did_you_mean(key, frozenset(MISTAKEN))}"
    return f"no node has this label: {hint}" if hint and key not in AWS_KEYS else ""
