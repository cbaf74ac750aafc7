"""Taints on nodes and the tolerations of pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A taint; `value` may be empty."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def identity(self) -> tuple[str, str]:
        """Key and effect. A node has at most one taint with each such pair."""
        return self.key, self.effect


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. An empty key with Exists tolerates every taint; an empty effect matches every effect.

    `operator` is Equal, Exists, or Gt or Lt (the taint's value is an integer above or below `value`).
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Equal" | "":
                return bool(self.key) and self.value == taint.value
            case "Gt" | "Lt":
                return self._compares(taint)
            case _:
                return False

    def covers(self, other: Toleration) -> bool:
        """Return whether it tolerates every taint that `other` tolerates, judged by their fields alone."""
        if self.effect not in {"", other.effect}:
            return False
        if self.operator == "Exists":
            return self.key in {"", other.key}
        return (self.key, self.operator, self.value) == (other.key, other.operator, other.value)

    def _compares(self, taint: Taint) -> bool:
        try:
            found, bound = int(taint.value), int(self.value)
        except ValueError:
            return False
        return found > bound if self.operator == "Gt" else found < bound


def common(some: Sequence[Toleration], others: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Return the tolerations that both lists cover."""
    found = [one for one in some if any(other.covers(one) for other in others)]
    found += [other for other in others if other not in found and any(one.covers(other) for one in some)]
    return tuple(found)


UNREGISTERED = Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE)
DISRUPTED = Taint("karpenter.sh/disrupted", Effect.NO_SCHEDULE)
_EPHEMERAL = frozenset(
    {
        ("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE.value),
        ("node.kubernetes.io/not-ready", Effect.NO_EXECUTE.value),
        ("node.kubernetes.io/unreachable", Effect.NO_SCHEDULE.value),
        ("node.cloudprovider.kubernetes.io/uninitialized", Effect.NO_SCHEDULE.value),
        UNREGISTERED.identity,
    }
)


def is_ephemeral(taint: Taint) -> bool:
    """Return whether this taint goes away while a node starts (Karpenter's known ephemeral taints)."""
    return taint.identity in _EPHEMERAL or taint.key.startswith("readiness.k8s.io/")


_STARTUP_DOMAINS = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_STATUS_DOMAIN = "status-taint.cluster-autoscaler.kubernetes.io/"


def is_startup(taint: Taint) -> bool:
    """Return whether a taint says by its key that a node loses it before it is ready (Cluster Autoscaler's keys)."""
    return taint.key.startswith(_STARTUP_DOMAINS)


def is_status(taint: Taint) -> bool:
    """Return whether a taint says by its key that a node is not to be used for now although it may be ready."""
    return taint.key.startswith(_STATUS_DOMAIN)


def is_temporary(taint: Taint) -> bool:
    """Return whether a taint of a new node says by its key that the node will lose it: no pod needs to tolerate it."""
    return is_startup(taint) or is_status(taint)


def first_untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *, soft: bool = False
) -> Taint | None:
    """Return the first taint that no toleration tolerates, None if there is none.

    PreferNoSchedule taints count only if `soft` is True.
    """
    tolerations = tuple(tolerations)
    asked = (taint for taint in taints if soft or taint.effect != Effect.PREFER_NO_SCHEDULE)
    return next((t for t in asked if not any(toleration.tolerates(t) for toleration in tolerations)), None)
