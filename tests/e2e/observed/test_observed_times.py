"""Nodes that take or live too long, as an observer sees them, on a clock that is ten times as fast."""

from __future__ import annotations

import pytest

from nodesmith.model.karpenter.nodepools import REGISTRATION_TIMEOUT
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.observed.observing import MUTE, claims_of, event_of, pool_of, the_claim
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.manifests import deployment, nodeclass, pod

pytestmark = pytest.mark.slow


def test_nodes_that_do_not_register_or_that_expire_end_on_time(start: Start) -> None:
    system = start(speed=HURRIED)
    silent = pool_of("silent", nodeclass="mute")
    silent["metadata"]["annotations"] = {REGISTRATION_TIMEOUT: "2m"}
    mortal = pool_of("mortal")
    mortal["spec"]["template"]["spec"]["expireAfter"] = "8m"  # 48 s, in which the test sees the first node
    system.apply(nodeclass(CLUSTER), MUTE, silent, mortal)
    system.until_nodepools_ready()
    system.apply(
        pod("silent", nodeSelector={"team": "silent"}),
        deployment("mortal", 1, nodeSelector={"team": "mortal"}),
    )
    first = the_claim(system, "silent")["metadata"]["name"]
    system.until_running(1, "mortal")
    old = the_claim(system, "mortal")["metadata"]["name"]
    says_of(system, "mortal", "NodeRegistrationHealthy", "True", "NodeRegistrationHealthy")
    system.until(
        "the status shows when a pod was bound",
        lambda: "lastPodEventTime" in claims_of(system, "mortal")[0]["status"],
    )

    event_of(system, first, "RegistrationTimeout")
    system.until("its NodeClaim is gone", lambda: first not in names_of(system, "silent"))
    says_of(system, "silent", "NodeRegistrationHealthy", "False", "RegistrationFailed")
    system.until("the old node is gone", lambda: old not in names_of(system, "mortal"), seconds=90)
    system.until_running(1, "mortal")


def names_of(system: System, team: str) -> set[str]:
    return {claim["metadata"]["name"] for claim in claims_of(system, team)}


def says_of(system: System, pool: str, kind: str, *said: str) -> None:
    """Wait until a NodePool shows a condition with this status and reason."""

    def shows() -> bool:
        shown = condition(system.cluster.objects.get("nodepools", pool), kind)
        return (shown.get("status"), shown.get("reason")) == said

    system.until(f"{kind} of {pool} is {' '.join(said)}", shows, seconds=90)
