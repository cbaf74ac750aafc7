"""The concerns as Lambda runs them: timeout, memory, permissions, and the concerns that each invokes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from infra.permissions import clusters
from infra.permissions.clusters import Scope
from infra.permissions.grants import Grant
from nodesmith.registration import OBSERVED_PARAMETERS, PARAMETERS
from nodesmith.settings import INFORMED, REGION_TICK_MINUTES, TALKING, function_name

# Prefixes of Kubernetes user names; forwarder/ binds them.
WRITER, READER = (
    "nodesmith:writer",
    "nodesmith:reader",
)


PACKING_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Of functions that pack. OpenBLAS would start threads that no matrix here needs: numpy would import half as fast."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One function that serves all clusters of a region.

    `grants` are the permissions in a cluster's session. `packs` is True for concerns that decide what to buy.
    `registrations` are the paths of the registrations that it may read. It works for their clusters only.
    """

    name: str
    timeout_seconds: int
    memory_mib: int
    grants: Callable[[Scope], list[Grant]]
    wakes: tuple[str, ...]
    packs: bool = False
    registrations: tuple[str, ...] = (PARAMETERS,)

    @property
    def calls_api_server(self) -> bool:
        """Whether the function calls the API server."""
        return self.name in TALKING

    @property
    def kubernetes_user(self) -> str:
        """The user name in the API server; EKS replaces the braces with the name of the session, the cluster's name."""
        return f"{READER if self.name == 'observation' else WRITER}:{{{{SessionName}}}}"

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that the function uses."""
        return ("core", "vendor", *(("packing",) if self.packs else ()))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that the function has beyond those of all functions."""
        return PACKING_ENVIRONMENT if self.packs else {}


# Memory buys a share of a processor: 1,769 MiB buy a whole one. Decisions are bound by the processor; waiting for EC2
# is not. Starting takes a third of a second of a whole processor, which costs the same with any share.
CLUSTER_CONCERNS = (
    Concern(
        "provisioning",
        60,
        1769,
        clusters.provisioning_grants,
        ("lifecycle", "provisioning", "readiness"),
        packs=True,
    ),
    Concern(
        "interruption",
        20,  # after three runs that timed out, a notice still has half a minute left
        1769,
        clusters.interruption_grants,
        ("lifecycle", "provisioning", "readiness", "termination"),
        packs=True,
    ),
    Concern(
        "disruption",
        60,
        1769,
        clusters.disruption_grants,
        ("disruption", "lifecycle", "provisioning", "termination"),
        packs=True,
    ),
    Concern(
        "lifecycle",
        60,
        1024,
        clusters.lifecycle_grants,
        ("disruption", "lifecycle", "provisioning", "readiness", "termination"),
    ),
    Concern(
        "termination",
        60,
        1024,
        clusters.termination_grants,
        ("disruption", "provisioning", "readiness", "termination"),
    ),
    Concern("readiness", 120, 1024, clusters.readiness_grants, ("disruption", "lifecycle", "provisioning")),
    Concern(
        "observation",
        60,
        1024,
        clusters.observation_grants,
        (*INFORMED, "shadow"),
        registrations=(PARAMETERS, OBSERVED_PARAMETERS),
    ),
    Concern("repair", 60, 1024, clusters.repair_grants, ("provisioning", "termination")),
    Concern("garbagecollection", 120, 1024, clusters.garbagecollection_grants, ("termination",)),
    Concern(
        "shadow",
        300,
        1769,
        clusters.shadow_grants,
        (),
        packs=True,
        registrations=(OBSERVED_PARAMETERS,),
    ),
)

CATALOG_TIMEOUT_SECONDS = 300
CATALOG_MEMORY_MIB = 1024

ROUTING_TIMEOUT_SECONDS = 10
ROUTING_MEMORY_MIB = 512

DISPATCH_TIMEOUT_SECONDS = 60
DISPATCH_MEMORY_MIB = 256


def function_names(vpcs: Iterable[str]) -> list[str]:
    """Return the names of all functions of a region with these VPCs."""
    names = [function_name(concern.name) for concern in CLUSTER_CONCERNS]
    names += [
        function_name(concern.name, vpc)
        for vpc in vpcs
        for concern in CLUSTER_CONCERNS
        if concern.calls_api_server
    ]
    return [*names, *map(function_name, REGION_TICK_MINUTES)]
