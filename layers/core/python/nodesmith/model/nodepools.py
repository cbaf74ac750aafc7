"""NodePool, karpenter.sh/v1: what nodes may be bought, how many, and how they may be taken away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodesmith.model.budgets import DEFAULT_BUDGETS, Budget
from nodesmith.model.durations import duration_seconds
from nodesmith.model.frozen import NO_ITEMS
from nodesmith.model.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.resources import NOTHING, Resources
from nodesmith.model.taints import Taint


@dataclass(frozen=True, slots=True)
class NodeClassRef:
    """Which NodeClass a NodePool or NodeClaim takes its AWS side from."""

    name: str
    group: str = "karpenter.k8s.aws"
    kind: str = "EC2NodeClass"

    @property
    def label(self) -> str:
        """The label key that a node of this class carries, its value being the name."""
        return f"{self.group}/{self.kind.lower()}"


@dataclass(frozen=True, slots=True)
class Disruption:
    """When a pool's nodes may be consolidated, and how many of them at once."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = DEFAULT_BUDGETS

    @property
    def consolidate_after_seconds(self) -> int | None:
        """None for `Never`: no consolidation at all, not even of empty nodes."""
        return duration_seconds(self.consolidate_after)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool with its defaults filled in."""

    name: str
    nodeclass: NodeClassRef
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    """Of `spec.template.metadata`, as are the annotations."""
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str | None = None
    disruption: Disruption = Disruption()
    limits: Resources = NOTHING
    """Includes the key `nodes`. A resource that is not named is not limited; 0 allows nothing."""
    weight: int = 0
    replicas: int | None = None
    uid: str = ""
    generation: int = 0
    hash: str = ""
    """Of the fields whose change replaces nodes (static drift)."""
    deleting: bool = False

    @property
    def expire_after_seconds(self) -> int | None:
        """Greatest age of a node; None for `Never`."""
        return duration_seconds(self.expire_after)

    @property
    def termination_grace_period_seconds(self) -> int | None:
        """How long a drain may take before pods are forced off; None for as long as it takes."""
        return duration_seconds(self.termination_grace_period)

    @property
    def is_static(self) -> bool:
        """True where the pool keeps a fixed number of nodes instead of following pods."""
        return self.replicas is not None
