"""How a machine joins: the kubelet settings in its user data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodesmith.model.apimachinery.labels import Taint, kubelet_may_set
from nodesmith.model.nodeclasses.instancesettings import AL2023


class Unusable(ValueError):
    """User data with which an instance never joins a cluster; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The kubelet's start-up settings. `kubelet` is its configuration by KubeletConfiguration's field names.

    `family` is the image family in whose format the user data is.
    """

    cluster: str
    endpoint: str
    kubelet: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    local_storage: str = ""
    family: str = AL2023
    cidr: str = ""
    """the range of Services' addresses, empty if the user data does not name it"""

    @property
    def is_ipv6(self) -> bool:
        """Whether Services, and therefore nodes and pods, have IPv6 addresses."""
        return ":" in self.cidr


def required(settings: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Raise Unusable for the names without a value."""
    missing = [name for name in names if not settings.get(name)]
    if missing:
        raise Unusable(f"{what} lacks {', '.join(missing)}")


def permitted(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels. Raises Unusable for labels that the kubelet may not set."""
    forbidden = sorted(key for key in labels if not kubelet_may_set(key))
    if forbidden:
        raise Unusable(f"the kubelet may not label its own node with {', '.join(forbidden)}")
    return labels


def pairs(text: str, sign: str = "=") -> dict[str, str]:
    """Return the pairs of a flag's value: `a=1,b=2`."""
    split = (pair.partition(sign) for pair in text.split(",") if pair)
    return {key: value for key, _, value in split}
