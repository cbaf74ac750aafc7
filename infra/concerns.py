"""The concerns as Lambda sees them: how often they look, for how long, with how much memory, and what they reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infra import permissions
from infra.grants import Grant
from infra.permissions import Scope

WRITER, READER = "nodesmith:writer", "nodesmith:reader"  # Kubernetes groups; forwarder/ binds them to roles


@dataclass(frozen=True, slots=True)
class Concern:
    """One function of a cluster.

    A run is given up to `batch_size` messages that arrive within `window_seconds`.
    What fails is `tried_again` where a message says more than "look".
    `kubernetes_group` is set for those that talk to the API server, `packs` for those that decide what to buy,
    `deletes_interfaces` for those whose own code may delete network interfaces.
    """

    name: str
    tick_minutes: int
    timeout_seconds: int
    memory_mib: int
    grants: Callable[[Scope], list[Grant]]
    kubernetes_group: str = ""
    packs: bool = False
    deletes_interfaces: bool = False
    batch_size: int = 10
    window_seconds: int = 0
    tried_again: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that it runs on."""
        own = {"kubernetes": bool(self.kubernetes_group), "packing": self.packs}
        return ("core", "vendor", *(name for name, wanted in own.items() if wanted))


# A mebibyte of memory buys a share of a processor: 1,769 are a whole one. Decisions are bound by it, waiting for EC2
# is not, and the kubernetes client takes a second of a whole one to import.
CLUSTER_CONCERNS = (
    Concern("provisioning", 1, 60, 1769, permissions.provisioning_grants, packs=True),
    Concern(
        "interruption",
        1,
        20,  # after three runs that timed out a notice still has half a minute
        1769,
        permissions.interruption_grants,
        packs=True,
        batch_size=100,  # 200 notices are two plans then, and not 20, each of which takes as long
        window_seconds=1,  # without which Lambda hands over ten at most
        tried_again=True,
    ),
    Concern("disruption", 1, 60, 1769, permissions.disruption_grants, WRITER, packs=True),
    Concern("lifecycle", 1, 60, 1024, permissions.lifecycle_grants, WRITER),
    Concern("termination", 1, 60, 1024, permissions.termination_grants, WRITER),
    Concern("readiness", 5, 120, 1024, permissions.readiness_grants, WRITER),
    Concern("observation", 1, 60, 1024, permissions.observation_grants, READER),
    Concern("repair", 1, 60, 1024, permissions.repair_grants, WRITER),
    Concern(
        "garbagecollection",
        2,
        120,
        1024,
        permissions.garbagecollection_grants,
        WRITER,
        deletes_interfaces=True,
    ),
)

CATALOG_TICK_MINUTES = 60
CATALOG_TIMEOUT_SECONDS = 300
CATALOG_MEMORY_MIB = 1024

ROUTING_TICK_MINUTES = 5  # so that a notice finds it warm
ROUTING_TIMEOUT_SECONDS = 10
ROUTING_MEMORY_MIB = 1024
