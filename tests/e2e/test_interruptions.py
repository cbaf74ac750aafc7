"""Instances that EC2 takes at two minutes' notice, on the real control plane: what replaces them is there first."""

from __future__ import annotations

from datetime import datetime, timedelta

from nodesmith_cli.local.cloud.announcing import announce_interruption
from nodesmith_cli.local.cloud.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.manifests import deployment, nodeclass, nodepool, requirement, taking
from tests.e2e.system import CLUSTER, HURRIED, Manifest

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge", "m6a.xlarge", "r6a.xlarge")
PODS, GRACE_SECONDS, WARNING = 9, 20, timedelta(minutes=2)


def test_two_nodes_that_ec2_takes_are_replaced_first_and_no_pod_is_killed_without_its_grace(
    start: Start, figures: Figures
) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
    system.until_nodepools_ready()
    web = deployment("web", PODS, "1", terminationGracePeriodSeconds=GRACE_SECONDS)
    system.apply(taking(web, start_seconds=2.0, stop_seconds=5.0))
    system.until_running(PODS, seconds=120)
    system.until_settled(seconds=60)
    victims = system.claims()[:2]
    names = {claim["metadata"]["name"] for claim in victims}
    nodes = {claim["status"]["nodeName"] for claim in victims}
    cut_short: list[str] = []
    first_gone: list[datetime] = []

    def note(pod: Manifest, now: datetime, *, gone: bool) -> None:
        del gone
        if pod["spec"].get("nodeName") not in nodes or "deletionTimestamp" not in pod["metadata"]:
            return
        first_gone.append(now)
        if pod["metadata"]["deletionGracePeriodSeconds"] not in {0, GRACE_SECONDS}:  # 0 once it has stopped
            cut_short.append(pod["metadata"]["name"])

    with system.followed_pods(note):
        began = system.clock.now()
        for claim in victims:
            instance = claim["status"]["providerID"].rpartition("/")[2]
            announce_interruption(system.aws.client("events"), system.aws.region, instance, began)
        system.until(
            "their end has begun", lambda: names <= {c.name for c in system.ledger().claims if c.is_ending}
        )
        causes = {c.name: c.cause for c in system.ledger().claims if c.name in names}
        system.until(
            "they are gone",
            lambda: not names & {claim["metadata"]["name"] for claim in system.claims()},
            seconds=180,
        )
    system.until_running(PODS, seconds=60)
    system.until_settled(seconds=60)
    bought = [claim for claim in system.ledger().claims if claim.created_at >= began]
    launched = min(claim.launched_at for claim in bought if claim.launched_at)
    ready = max(claim.initialized_at for claim in bought if claim.initialized_at)
    figures("notice-to-replacement-launched-s", round((launched - began).total_seconds(), 1))
    figures("notice-to-replacement-ready-s", round((ready - began).total_seconds(), 1))
    figures("killed-without-grace", len(cut_short))
    assert causes == dict.fromkeys(names, "SpotInterrupted")
    assert cut_short == []
    assert launched < min(first_gone) <= began + WARNING
