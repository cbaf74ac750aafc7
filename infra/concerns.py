"""The concerns as Lambda sees them: for how long they run, with how much memory, what they reach and whom they wake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from infra import permissions
from infra.grants import Grant
from infra.permissions import Scope
from nodesmith.settings import INFORMED, REGION_TICK_MINUTES, TALKING, function_name

WRITER, READER = (
    "nodesmith:writer",
    "nodesmith:reader",
)  # beginnings of Kubernetes users; forwarder/ binds them


@dataclass(frozen=True, slots=True)
class Concern:
    """One function that serves all clusters of a region.

    `grants` are what it may do in a cluster's session. `packs` is set for those that decide what to buy.
    """

    name: str
    timeout_seconds: int
    memory_mib: int
    grants: Callable[[Scope], list[Grant]]
    wakes: tuple[str, ...]
    packs: bool = False

    @property
    def talks(self) -> bool:
        """Whether it talks to the API server."""
        return self.name in TALKING

    @property
    def kubernetes_user(self) -> str:
        """As whom an API server knows it; EKS puts the name of the session, a cluster's, in the place of the braces."""
        return f"{READER if self.name == 'observation' else WRITER}:{{{{SessionName}}}}"

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that it runs on."""
        own = {"kubernetes": self.talks, "packing": self.packs}
        return ("core", "vendor", *(name for name, wanted in own.items() if wanted))


# A mebibyte of memory buys a share of a processor: 1,769 are a whole one. Decisions are bound by it, waiting for EC2
# is not. What one needs to start, a third of a second of a whole one, costs the same with any share.
CLUSTER_CONCERNS = (
    Concern(
        "provisioning",
        60,
        1769,
        permissions.provisioning_grants,
        ("lifecycle", "provisioning", "readiness"),
        packs=True,
    ),
    Concern(
        "interruption",
        20,  # after three runs that timed out a notice still has half a minute
        1769,
        permissions.interruption_grants,
        ("lifecycle", "provisioning", "readiness", "termination"),
        packs=True,
    ),
    Concern(
        "disruption",
        60,
        1769,
        permissions.disruption_grants,
        ("disruption", "lifecycle", "provisioning", "termination"),
        packs=True,
    ),
    Concern(
        "lifecycle",
        60,
        1024,
        permissions.lifecycle_grants,
        ("disruption", "lifecycle", "provisioning", "readiness", "termination"),
    ),
    Concern(
        "termination",
        60,
        1024,
        permissions.termination_grants,
        ("disruption", "provisioning", "readiness", "termination"),
    ),
    Concern(
        "readiness", 120, 1024, permissions.readiness_grants, ("disruption", "lifecycle", "provisioning")
    ),
    Concern("observation", 60, 1024, permissions.observation_grants, INFORMED),
    Concern("repair", 60, 1024, permissions.repair_grants, ("provisioning", "termination")),
    Concern("garbagecollection", 120, 1024, permissions.garbagecollection_grants, ("termination",)),
)

CATALOG_TIMEOUT_SECONDS = 300
CATALOG_MEMORY_MIB = 1024

ROUTING_TIMEOUT_SECONDS = 10
ROUTING_MEMORY_MIB = 512

DISPATCH_TIMEOUT_SECONDS = 60
DISPATCH_MEMORY_MIB = 256


def function_names(vpcs: Iterable[str]) -> list[str]:
    """Return the names of all functions of a region with these VPCs."""
    names = [function_name(each.name) for each in CLUSTER_CONCERNS]
    names += [function_name(each.name, vpc) for vpc in vpcs for each in CLUSTER_CONCERNS if each.talks]
    return [*names, *map(function_name, REGION_TICK_MINUTES)]
