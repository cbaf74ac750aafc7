"""What an observer with kubectl sees of disruption is what Karpenter shows: rules, conditions, taints, Events, order.

All NodePools stand in one cluster, each with pods of its own. Everything is applied at once, then all changes are, so
that what they come to is waited for once. `scene` says beside each test what it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_cli.local.timeline import condition
from tests.e2e.manifests import Manifest, deployment, nodeclass, nodepool, pod, requirement
from tests.e2e.observer import Observer, is_true, observing
from tests.e2e.system import CLUSTER, HURRIED, System

SHARED = {"speed": HURRIED, "no_capacity": ["c6i.large"]}
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
ALL: Sequence[Manifest] = ({"nodes": "100%"},)
NONE: Sequence[Manifest] = ({"nodes": "0"},)
LARGE = "c6a.large"
"""2 vCPUs: room for one pod of 1 and a little more"""


@dataclass(slots=True)
class Scenes:
    """What is applied at first, and what is changed once all of that runs."""

    before: list[Manifest] = field(default_factory=list)
    after: list[Manifest] = field(default_factory=list)

    def pods(self) -> int:
        """Count the pods that run before anything changes."""
        deployed = (each["spec"]["replicas"] for each in self.before if each["kind"] == "Deployment")
        return sum(deployed)


SCENES = Scenes()
Test = Callable[..., None]


def scene(before: Sequence[Manifest], after: Sequence[Manifest] = ()) -> Callable[[Test], Test]:
    """Have manifests applied before the tests of this module, and changes once they run."""
    SCENES.before += before
    SCENES.after += after
    return lambda test: test


def pool(
    name: str,
    *types: str,
    budgets: Sequence[Mapping[str, Any]] = ALL,
    after: str = "0s",
    policy: str = "WhenEmptyOrUnderutilized",
    replicas: int | None = None,
    annotations: Mapping[str, str] | None = None,
    zone: str = "",
    grace: str = "",
    **labels: str,
) -> Manifest:
    """Return a NodePool for the pods of its team, by default of nodes with room for one pod of 1 cpu."""
    sizes = requirement("node.kubernetes.io/instance-type", *(types or [LARGE]))
    zones = [requirement("topology.kubernetes.io/zone", zone)] if zone else []
    made = nodepool(name, requirements=[sizes, ON_DEMAND, *zones], labels={"team": name, **labels})
    made["spec"]["disruption"] = {
        "budgets": list(budgets),
        "consolidateAfter": after,
        "consolidationPolicy": policy,
    }
    made["spec"]["template"]["metadata"]["annotations"] = dict(annotations or {})
    if replicas is not None:
        made["spec"]["replicas"] = replicas
    if grace:
        made["spec"]["template"]["spec"]["terminationGracePeriod"] = grace
    return made


def app(
    team: str,
    replicas: int = 1,
    cpu: str = "1",
    *,
    name: str = "",
    annotations: Mapping[str, str] | None = None,
    zone: str = "",
) -> Manifest:
    """Return a Deployment of a team's pods."""
    where = {"team": team, **({"topology.kubernetes.io/zone": zone} if zone else {})}
    made = deployment(name or team, replicas, cpu, nodeSelector=where)
    made["spec"]["template"]["metadata"]["annotations"] = dict(annotations or {})
    return made


def guard(name: str, app_name: str, **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget for the pods of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "selector": {"matchLabels": {"app": app_name}}},
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster on which everything has been applied, what is seen of it, and on which node each app ran at first."""

    system: System
    seen: Observer
    homes: Mapping[str, str]

    def until(self, what: str, holds: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is seen."""
        self.system.until(what, lambda: bool(holds()), seconds)

    def until_told(self, team: str, reason: str, word: str, *kinds: str) -> None:
        """Wait until Events of a reason about objects of these kinds say a word."""

        def told() -> bool:
            said = {kind for kind, message in self.seen.told(team, reason) if word in message}
            return said >= set(kinds)

        self.until(f"{reason} of {team} on {kinds} says {word!r}", told)

    def claim_of(self, app_name: str) -> str:
        """Name the claim of the node on which an app ran at first."""
        node = self.homes[app_name]
        changes = (moment.object for moment in self.seen.claims)
        return next(
            str(each["metadata"]["name"])
            for each in changes
            if (each.get("status") or {}).get("nodeName") == node
        )


@pytest.fixture(scope="module")
def stage(lasting: System) -> Iterator[Stage]:
    with observing(lasting) as seen:
        lasting.apply(nodeclass(CLUSTER), *SCENES.before)
        lasting.until_nodepools_ready()
        lasting.until("all pods run that can", lambda: _running(lasting) == SCENES.pods(), seconds=120)
        homes = {
            each["metadata"]["labels"]["app"]: each["spec"].get("nodeName", "") for each in lasting.pods()
        }
        lasting.apply(*SCENES.after)
        yield Stage(lasting, seen, homes)


def _running(system: System) -> int:
    deployed = [each for each in system.pods() if each["metadata"].get("ownerReferences")]
    return sum(each["status"].get("phase") == "Running" for each in deployed)


HOMELESS = pod("homeless", nodeSelector={"team": "nobody"})
"""A pod that nobody can place keeps no node from anything: it waits through all that is tested here."""
SCENES.before.append(HOMELESS)
PODS_ASK = {DO_NOT_DISRUPT: "true"}
BLOCKED, UNCONSOLIDATABLE = "DisruptionBlocked", "Unconsolidatable"


@scene(
    before=[
        pool("annotated", annotations=PODS_ASK),
        app("annotated"),
        pool("protected"),
        app("protected", annotations=PODS_ASK),
        pool("for-an-hour"),
        app("for-an-hour", annotations={DO_NOT_DISRUPT: "1h"}),
        pool("guarded"),
        app("guarded"),
        guard("guarded", "guarded", maxUnavailable=0),
        pool("twice-guarded"),
        app("twice-guarded"),
        guard("one", "twice-guarded", maxUnavailable=1),
        guard("two", "twice-guarded", maxUnavailable=1),
        pool("never", after="Never"),
        app("never"),
        pool("static", replicas=1),
        pool("full"),
        app("full"),
    ],
)
@pytest.mark.parametrize(
    ("team", "reason", "word"),
    [
        ("annotated", BLOCKED, DO_NOT_DISRUPT),
        ("protected", BLOCKED, "pod default/protected-"),
        ("for-an-hour", BLOCKED, "pod default/for-an-hour-"),
        ("guarded", BLOCKED, "PodDisruptionBudget default/guarded"),
        ("twice-guarded", BLOCKED, "2 budgets"),
        ("never", UNCONSOLIDATABLE, "consolidateAfter: Never"),
        ("static", UNCONSOLIDATABLE, "spec.replicas"),
        ("full", UNCONSOLIDATABLE, "cheaper"),
    ],
)
def test_node_and_nodeclaim_say_which_rule_keeps_them(
    stage: Stage, team: str, reason: str, word: str
) -> None:
    stage.until_told(team, reason, word, "Node", "NodeClaim")
    other = UNCONSOLIDATABLE if reason == BLOCKED else BLOCKED
    assert not [message for _, message in stage.seen.told(team, other) if word in message]
    assert not stage.seen.ended(team)


@scene(before=[pool("misread"), app("misread", annotations={DO_NOT_DISRUPT: "soon"})])
def test_pods_say_what_comes_of_their_do_not_disrupt(stage: Stage) -> None:
    def told(reason: str) -> set[str]:
        return {
            e["involvedObject"]["name"].rpartition("-")[0] for e in stage.seen.events if e["reason"] == reason
        }

    stage.until("a value that protects nothing is told", lambda: told("InvalidDoNotDisruptAnnotation"))
    stage.until("until when a pod is protected is told", lambda: told("DoNotDisruptUntil"))
    assert all(name.startswith("misread") for name in told("InvalidDoNotDisruptAnnotation"))
    assert all(name.startswith("for-an-hour") for name in told("DoNotDisruptUntil"))


@scene(
    before=[
        pool("closed", budgets=NONE),
        app("closed"),
        pool("closed-now", budgets=[{"nodes": "0", "schedule": "* * * * *", "duration": "2h"}]),
        app("closed-now"),
    ],
    after=[app("closed", 0), app("closed-now", 0)],
)
@pytest.mark.parametrize("team", ["closed", "closed-now"])
def test_a_budget_of_none_keeps_even_empty_nodes_and_is_told_on_the_nodepool(stage: Stage, team: str) -> None:
    stage.until_told(team, BLOCKED, "budgets", "NodePool")
    stage.until("it is Consolidatable", lambda: is_true(stage.seen.only(team), "Consolidatable"))
    assert not stage.seen.ended(team)


@scene(
    before=[
        pool("closed-on-leap-days", budgets=[{"nodes": "0", "schedule": "0 0 29 2 *", "duration": "1m"}]),
        app("closed-on-leap-days"),
    ],
    after=[app("closed-on-leap-days", 0)],
)
def test_a_budget_whose_schedule_is_not_open_limits_nothing(stage: Stage) -> None:
    stage.until("the empty node is gone", lambda: not stage.seen.now("closed-on-leap-days"))
    (name,) = stage.seen.names("closed-on-leap-days")
    assert stage.seen.conditions(name, "DisruptionReason") == ["", "Empty"]


@scene(
    before=[pool("halves", budgets=[{"nodes": "50%"}]), app("halves", 3)],
    after=[app("halves", 0)],
)
def test_empty_nodes_go_together_as_many_as_a_share_rounded_up_allows(stage: Stage) -> None:
    stage.until("all are gone", lambda: len(stage.seen.ended("halves")) == 3 and not stage.seen.now("halves"))
    at_once = {
        sum(bool(claim["metadata"].get("deletionTimestamp")) for claim in claims.values())
        for claims in stage.seen.moments("halves")
    }
    assert max(at_once) == 2, "half of three, rounded up"


@scene(
    before=[pool("when-empty", policy="WhenEmpty"), app("when-empty"), app("when-empty", name="leaves")],
    after=[app("when-empty", 0, name="leaves")],
)
def test_by_policy_when_empty_only_empty_nodes_go(stage: Stage) -> None:
    stage.until("the empty node is gone", lambda: len(stage.seen.now("when-empty")) == 1)
    assert stage.seen.ended("when-empty") == [stage.claim_of("leaves")]
    stage.until_told("when-empty", UNCONSOLIDATABLE, "empty nodes only", "Node", "NodeClaim")


def sequence(seen: Observer, team: str, old: str) -> list[str]:
    """Return what came after what as a node was replaced, each step once."""
    steps: list[str] = []
    for claims in seen.moments(team):
        new = [claim for name, claim in claims.items() if name != old]
        if old in claims and condition(claims[old], "DisruptionReason"):
            steps.append("DisruptionReason")
        if new:
            steps.append("replacement")
        if new and all(is_true(claim, "Initialized") for claim in new):
            steps.append("ready")
        if old in claims and claims[old]["metadata"].get("deletionTimestamp"):
            steps.append("deleted")
        if old not in claims and new:
            steps.append("gone")
    return list(dict.fromkeys(steps))


IN_ORDER = ["DisruptionReason", "replacement", "ready", "deleted", "gone"]


@scene(
    before=[pool("cheaper", "c6a.4xlarge", LARGE), app("cheaper"), app("cheaper", cpu="14", name="big")],
    after=[app("cheaper", 0, name="big")],
)
def test_a_node_too_large_is_replaced_by_a_cheaper_one_step_by_step(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("cheaper")
    stage.until("it is replaced", lambda: old not in seen.now("cheaper"))
    assert sequence(seen, "cheaper", old) == IN_ORDER
    assert seen.conditions(old, "DisruptionReason") == ["", "Underutilized"]
    labels = seen.only("cheaper")["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == LARGE
    assert {kind for kind, _ in seen.told("cheaper", "ConsolidationCandidate")} == {"Node", "NodeClaim"}
    assert {kind for kind, _ in seen.told("cheaper", "DisruptionTerminating")} == {"Node", "NodeClaim"}
    assert {kind for kind, _ in seen.told("cheaper", "DisruptionLaunching")} == {"NodeClaim"}
    assert not seen.told("cheaper", "ConsolidationApproved"), "that is said by policy Balanced"


@scene(
    before=[
        pool("balanced", "c6a.4xlarge", LARGE, policy="Balanced"),
        app("balanced"),
        app("balanced", cpu="14", name="weight"),
    ],
    after=[app("balanced", 0, name="weight")],
)
def test_by_policy_balanced_a_move_that_saves_its_share_is_approved(stage: Stage) -> None:
    old = stage.claim_of("balanced")
    stage.until_told("balanced", "ConsolidationApproved", "saves", "Node", "NodeClaim")
    stage.until("it is replaced", lambda: old not in stage.seen.now("balanced"))


@scene(
    before=[pool("one-to-three", "c6a.2xlarge", after="Never"), app("one-to-three", 3)],
    after=[pool("one-to-three", LARGE, after="Never")],
)
def test_a_drifted_node_is_replaced_by_as_many_as_its_pods_need(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("one-to-three")
    stage.until("it is replaced", lambda: old not in seen.now("one-to-three"))
    assert len(seen.now("one-to-three")) == 3
    assert sequence(seen, "one-to-three", old) == IN_ORDER
    assert seen.conditions(old, "Drifted") == ["", "RequirementsDrifted"]
    assert seen.conditions(old, "DisruptionReason") == ["", "Drifted"]


@scene(
    before=[
        pool("empty-first", budgets=[{"nodes": "1"}], after="Never"),
        app("empty-first"),
        app("empty-first", name="emptied"),
    ],
    after=[
        pool("empty-first", budgets=[{"nodes": "1"}], after="Never", age="new"),
        app("empty-first", 0, name="emptied"),
    ],
)
def test_of_drifted_nodes_those_without_pods_go_first(stage: Stage) -> None:
    stage.until("both are on their way", lambda: len(stage.seen.ended("empty-first")) == 2)
    assert stage.seen.ended("empty-first") == [stage.claim_of("emptied"), stage.claim_of("empty-first")]


@scene(
    before=[pool("one-by-one", budgets=[{"nodes": "1"}], replicas=2)],
    after=[pool("one-by-one", budgets=[{"nodes": "1"}], replicas=2, age="new")],
)
def test_drifted_nodes_of_a_static_nodepool_are_replaced_one_by_one(stage: Stage) -> None:
    seen = stage.seen
    stage.until(
        "both are replaced",
        lambda: len(seen.ended("one-by-one")) == 2 and len(seen.now("one-by-one")) == 2,
    )
    assert not set(seen.ended("one-by-one")) & seen.now("one-by-one").keys()
    assert max(len(claims) for claims in seen.moments("one-by-one")) == 3
    assert not any(is_true(c, "Consolidatable") for m in seen.moments("one-by-one") for c in m.values())


@scene(
    before=[
        pool("drift-waits", budgets=[{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}]),
        app("drift-waits"),
        app("drift-waits", name="parts"),
    ],
    after=[
        pool("drift-waits", budgets=[{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}], age="new"),
        app("drift-waits", 0, name="parts"),
    ],
)
def test_a_budget_for_drift_keeps_drifted_nodes_only_and_drift_that_is_over_is_taken_off(
    stage: Stage,
) -> None:
    seen = stage.seen
    stage.until("the empty one is gone", lambda: len(seen.now("drift-waits")) == 1)
    assert seen.conditions(stage.claim_of("parts"), "DisruptionReason") == ["", "Empty"]
    stage.until("the other has drifted", lambda: is_true(seen.only("drift-waits"), "Drifted"))
    stage.until_told("drift-waits", BLOCKED, "budgets", "NodePool")

    stage.system.apply(pool("drift-waits", budgets=NONE))

    kept = stage.claim_of("drift-waits")
    stage.until("nothing is said of drift", lambda: not condition(seen.only("drift-waits"), "Drifted"))
    assert seen.conditions(kept, "Drifted") == ["", "NodePoolDrifted", ""]
    assert not seen.is_tainted(seen.only("drift-waits"))


@scene(
    before=[pool("hurried", grace="1m", after="Never"), app("hurried", annotations=PODS_ASK)],
    after=[pool("hurried", grace="1m", after="Never", age="new")],
)
def test_a_drifted_node_with_a_termination_grace_period_goes_whatever_its_pods_ask_for(stage: Stage) -> None:
    old = stage.claim_of("hurried")
    stage.until("it is replaced", lambda: old not in stage.seen.now("hurried"))
    assert stage.seen.conditions(old, "DisruptionReason") == ["", "Drifted"]


@scene(
    before=[pool("bound", after="Never"), app("bound", zone="us-east-1a")],
    after=[pool("bound", after="Never", zone="us-east-1b")],
)
def test_a_drifted_node_whose_pod_would_have_no_node_says_so_and_stays(stage: Stage) -> None:
    stage.until_told("bound", BLOCKED, "would have no node", "Node", "NodeClaim")
    assert stage.seen.conditions(stage.claim_of("bound"), "Drifted") == ["", "RequirementsDrifted"]
    assert not stage.seen.ended("bound")


@scene(before=[pool("later", after="720h"), app("later")])
def test_nothing_is_said_of_nodes_whose_pods_are_not_quiet_yet(stage: Stage) -> None:
    stage.until_told("full", UNCONSOLIDATABLE, "cheaper", "Node", "NodeClaim")
    assert stage.seen.conditions(stage.claim_of("later"), "Consolidatable") == [""]
    assert not stage.seen.told("later", UNCONSOLIDATABLE)


@scene(before=[pool("marked", budgets=NONE), app("marked")])
def test_marks_of_a_disruption_that_nobody_carries_out_are_taken_off(stage: Stage) -> None:
    system, claim = stage.system, stage.seen.only("marked")
    objects, name = system.cluster.objects, claim["metadata"]["name"]
    system.kubectl("taint", "node", stage.homes["marked"], "karpenter.sh/disrupted:NoSchedule")
    mark = (
        '[{"op": "add", "path": "/status/conditions/-", "value": {"type": "DisruptionReason", "status": "True", '
        '"reason": "Underutilized", "message": "", "lastTransitionTime": "2026-11-21T08:00:00Z"}}]'
    )
    system.kubectl("patch", "nodeclaim", name, "--subresource=status", "--type=json", "-p", mark)

    def is_clean() -> bool:
        now = objects.get("nodeclaims", name)
        return now is not None and not condition(now, "DisruptionReason") and not stage.seen.is_tainted(now)

    stage.until("they are gone", is_clean)
    assert "Underutilized" in stage.seen.conditions(name, "DisruptionReason")


@scene(before=[pool("not-to-be-had", "c6i.xlarge", "c6i.large"), app("not-to-be-had")])
def test_where_the_replacement_is_not_to_be_had_the_node_stays_and_its_marks_go(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("not-to-be-had")
    stage.until_told("not-to-be-had", "ConsolidationRejected", "not to be had", "Node", "NodeClaim")

    def is_unmarked() -> bool:
        claim = seen.now("not-to-be-had")[old]
        return not condition(claim, "DisruptionReason") and not seen.is_tainted(claim)

    stage.until("its marks are gone", is_unmarked)
    assert old not in seen.ended("not-to-be-had")
    assert seen.conditions(old, "DisruptionReason")[:3] == ["", "Underutilized", ""]


def test_a_pod_that_nobody_can_place_has_waited_all_the_time(stage: Stage) -> None:
    (homeless,) = [each for each in stage.system.pods() if each["metadata"]["name"] == "homeless"]
    assert homeless["status"]["phase"] == "Pending"
    assert all(node["metadata"]["labels"][NODEPOOL] != "nobody" for node in stage.system.nodes())
