"""Instances that EC2 reclaims with two minutes' notice, on the real control plane: replacements are ready first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_local.aws.instances.eventbus import announce_interruption
from nodesmith_local.aws.instances.stages import USUAL, Delays
from tests.e2e.conftest import Alone, Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System, Waited
from tests.objects import manifests
from tests.objects.manifests import budget, deployment, nodeclass, nodepool, requirement, taking

pytestmark = pytest.mark.slow

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge", "m6a.xlarge", "r6a.xlarge")
PODS, GRACE_SECONDS, WARNING = 9, 20, timedelta(minutes=2)


def test_interrupted_nodes_are_replaced_first_and_every_pod_gets_its_grace_period(
    start: Start, figures: Figures, alone: Alone
) -> None:
    with alone():  # here two minutes take twelve seconds, so no other test may compete for the processors
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
            grace = pod["metadata"]["deletionGracePeriodSeconds"]
            if grace not in {0, GRACE_SECONDS}:  # 0 once it has stopped
                cut_short.append(pod["metadata"]["name"])

        with system.followed("pods", note, "default"):
            began = system.clock.now()
            for claim in victims:
                instance = claim["status"]["providerID"].rpartition("/")[2]
                announce_interruption(system.aws.client("events"), system.aws.region, instance, began)
            system.until(
                "their termination has started",
                lambda: names <= {c.name for c in system.ledger().claims if c.is_ending},
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


NODES, NOTICES, APPS = 30, 10, 10
GRACES = range(10, 61, 5)
ONE_NODE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge", "m6a.xlarge", "r6a.xlarge")
PACE = 2.0
"""A clock speed at which the processors are still idle most of the time. Kubelets run in real time."""
SPOT = requirement("karpenter.sh/capacity-type", "spot")
LAST_SECONDS = timedelta(seconds=15)
"""Before the last moment that leaves a pod its grace period. Only then may it be evicted against its budget."""
SLACK = timedelta(seconds=2)
"""The API server writes whole seconds, and watches deliver changes a little later."""


def guarded(app: int) -> list[manifests.Manifest]:
    """Return a Deployment of 30 pods with a budget that keeps 80 % available, and a grace period of 10 to 60 s."""
    name, grace = f"app-{app}", GRACES[app % len(GRACES)]
    made = deployment(name, NODES, "380m", "500Mi", terminationGracePeriodSeconds=grace)
    slow = taking(made, start_seconds=1.0 / PACE, stop_seconds=min(8.0, grace / 2) / PACE)
    return [slow, budget(name, minAvailable="80%")]


def pending_seconds(waited: Mapping[str, Waited], before: Collection[str]) -> float:
    """Return how many seconds the pods created since then were pending, in total."""
    new = [each for key, each in waited.items() if key not in before]
    assert all(each.running_at for each in new)
    return sum((each.running_at - each.pending_at).total_seconds() for each in new if each.running_at)


@dataclass(slots=True)
class Witness:
    """Records killed pods: those that outlived the notice of their instance, or got less than their grace period."""

    taken_at: Mapping[str, datetime]
    killed: set[str] = field(default_factory=set)
    told_to_go: dict[str, tuple[datetime, float]] = field(default_factory=dict)

    def __call__(self, pod: Manifest, now: datetime, *, gone: bool) -> None:
        taken_at = self.taken_at.get(pod["spec"].get("nodeName", ""))
        name, metadata = pod["metadata"]["name"], pod["metadata"]
        if taken_at is None or "deletionTimestamp" not in metadata:
            return
        grace = pod["spec"]["terminationGracePeriodSeconds"]
        self.told_to_go.setdefault(name, (now, grace))
        if metadata["deletionGracePeriodSeconds"] not in {0, grace} or (gone and now > taken_at + SLACK):
            self.killed.add(name)  # the grace period is 0 once it has stopped

    def forced_early(self, forced: Collection[str], taken_at: datetime) -> set[str]:
        """Return the forcibly deleted pods that were deleted long before the last moment allowed."""
        reported = {name: self.told_to_go[name] for name in forced if name in self.told_to_go}
        return {
            name
            for name, (at, grace) in reported.items()
            if at < taken_at - timedelta(seconds=grace) - LAST_SECONDS - SLACK
        }


def test_when_a_third_of_the_nodes_is_interrupted_pods_wait_a_quarter_as_long_as_without_replacement(
    start: Start, figures: Figures, alone: Alone
) -> None:
    system = start(speed=PACE, delays=Delays.between(35, 70))
    pool = nodepool(requirements=[ONE_NODE, SPOT])
    pool["spec"]["disruption"] = {"consolidateAfter": "Never"}
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready()
    system.apply(*(each for app in range(APPS) for each in guarded(app)))
    system.until_running(NODES * APPS, seconds=240)
    system.until_settled(seconds=120)

    victims = system.claims()[:NOTICES]
    nodes = {claim["status"]["nodeName"] for claim in victims}
    names = {claim["metadata"]["name"] for claim in victims}
    before, before_pods = len(system.instances()), {pod_key(pod) for pod in system.pods()}
    with alone():
        began = system.clock.now()
        witness = Witness(dict.fromkeys(nodes, began + WARNING))
        with system.followed("pods", witness, "default"), system.watched_pods() as waited:
            for claim in victims:
                instance = claim["status"]["providerID"].rpartition("/")[2]
                announce_interruption(system.aws.client("events"), system.aws.region, instance, began)
            system.until("they are gone", lambda: not names & claim_names(system), seconds=240)
            system.until_running(NODES * APPS, seconds=120)
        ours = pending_seconds(waited, before_pods)
        system.until_settled(seconds=120)
        reported = [event["involvedObject"] for event in system.events("Disrupted")]
        forced = {each["name"] for each in reported if each["kind"] == "Pod"}
        early = witness.forced_early(forced, began + WARNING)
        bought = [claim for claim in system.ledger().claims if claim.created_at >= began]

        before_pods = {pod_key(pod) for pod in system.pods()}
        deleted = sorted(claim_names(system))[:NOTICES]
        with system.watched_pods() as waited:
            system.kubectl("delete", "nodeclaims", "--wait=false", *deleted)
            system.until("they are gone too", lambda: not set(deleted) & claim_names(system), seconds=400)
            system.until_running(NODES * APPS, seconds=120)
        theirs = pending_seconds(waited, before_pods)

    figures("interruption-pending-ratio", round(ours / theirs, 3))
    figures("interruption-pending-pod-seconds", round(ours))
    figures("delete-first-pending-pod-seconds", round(theirs))
    figures("killed-without-grace", len(witness.killed))
    figures("forced-against-budgets", len(forced))
    figures("forced-early", len(early))
    figures("second-replacements", max(0, len(bought) - NOTICES))
    ready = max(claim.initialized_at for claim in bought if claim.initialized_at)
    figures("notice-to-replacements-ready-s", round((ready - began).total_seconds(), 1))
    assert witness.killed == set()
    assert early == set()
    assert len(bought) <= NOTICES
    assert len(system.instances()) <= before
    assert ours <= 0.25 * theirs


def claim_names(system: System) -> set[str]:
    """Return the names of the current NodeClaims."""
    return {claim["metadata"]["name"] for claim in system.claims()}
