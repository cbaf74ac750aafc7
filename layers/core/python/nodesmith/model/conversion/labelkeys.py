"""Old and mistaken label keys and values, and what each is read as.

Sources: the keys of Karpenter 0.4 to 0.37, of EKS managed node groups and EKS Auto Mode, and of blog posts.
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
from nodesmith.model.apimachinery.problems import did_you_mean

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
"""Key that no node of Karpenter has → the intended key."""
RENAMED: Mapping[str, str] = {**ALIASES, PROVISIONER_NAME: NODEPOOL}
"""Key that was once right → its current name."""
WITHOUT_EQUIVALENT: Mapping[str, str] = {
    f"{AWS_DOMAIN}/instance-pods": "the number of pods of a node has no label; maxPods limits it",
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
"""Key → known spelling of a value, in lower case with dashes → current value."""


class Reading(NamedTuple):
    """What a key and its values are read as. `why` is empty if they are right, or unknown and left unchanged."""

    key: str
    values: tuple[str, ...]
    why: str = ""
    renamed: bool = False
    """True if the only change is from a key that was once right."""


def read_label(key: str, values: tuple[str, ...]) -> Reading:
    """Read a label key with the values that it must or must not have."""
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
    """Return whether a value is a category (c, hpc), and not a number, a family (with a digit) or a size (longer)."""
    return _CATEGORIES.fullmatch(value) is not None


def unknown_key(key: str) -> str:
    """Return advice for a key in AWS's domains that no node has, empty for all other keys."""
    hint = WITHOUT_EQUIVALENT.get(key, "")
    if key.startswith(_AUTO_MODE) and key not in MISTAKEN:
        hint = (
            f"it belongs to EKS Auto Mode and has no equivalent here{did_you_mean(key, frozenset(MISTAKEN))}"
        )
    return f"no node has this label: {hint}" if hint and key not in AWS_KEYS else ""
