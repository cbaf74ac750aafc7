"""An observer with kubectl sees Karpenter's disruption: rules, conditions, taints, Events and order.

All NodePools are in one cluster, each with its own pods. All manifests are applied at once, and then all changes, so
that their effects are awaited only once. `scene` beside each test says what the test looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodepools import NODE_REPAIR
from nodesmith_formats.kubernetes.objects import is_true
from nodesmith_local.runs.timeline import condition
from tests.e2e.observed.observer import Observer, observing
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.manifests import Manifest, budget, deployment, nodeclass, nodepool, pod, requirement

SHARED = {"speed": HURRIED, "no_capacity": ["c6i.large"]}
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
ALL: Sequence[Manifest] = ({"nodes": "100%"},)
NONE: Sequence[Manifest] = ({"nodes": "0"},)
LARGE = "c6a.large"
"""2 vCPUs: room for one pod of 1 cpu and a little more."""


@dataclass(slots=True)
class Scenes:
    """The manifests applied at first, and once all of those run: further ones, and apps whose nodes then fail."""

    before: list[Manifest] = field(default_factory=list)
    after: list[Manifest] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)

    def pods(self) -> int:
        """Return the number of pods that run before anything changes."""
        deployed = (each["spec"]["replicas"] for each in self.before if each["kind"] == "Deployment")
        return sum(deployed)


SCENES = Scenes()
Test = Callable[..., None]


def scene(
    before: Sequence[Manifest], after: Sequence[Manifest] = (), failing: Sequence[str] = ()
) -> Callable[[Test], Test]:
    """Register manifests to apply before this module's tests, and what changes once they run."""
    SCENES.before += before
    SCENES.after += after
    SCENES.failing += failing
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
    """Return a NodePool for its team's pods, by default of nodes with room for one pod of 1 cpu."""
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


def repairing(team: str, mode: str) -> Manifest:
    """Return a NodePool with this mode of repair, whose nodes otherwise stay."""
    made = pool(team, after="Never")
    made["metadata"]["annotations"] = {NODE_REPAIR: mode}
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


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster with everything applied, what has been seen of it, and the node on which each app ran at first."""

    system: System
    seen: Observer
    homes: Mapping[str, str]

    def until(self, what: str, holds: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is seen."""
        self.system.until(what, lambda: bool(holds()), seconds)

    def until_reported(self, team: str, reason: str, word: str, *kinds: str) -> None:
        """Wait until Events with a reason about objects of these kinds contain a word."""

        def is_reported() -> bool:
            said = {kind for kind, message in self.seen.reports(team, reason) if word in message}
            return said >= set(kinds)

        self.until(f"{reason} of {team} on {kinds} says {word!r}", is_reported)

    def claim_of(self, app_name: str) -> str:
        """Return the name of the claim of the node on which an app ran at first."""
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
        lasting.until(
            "all pods run that can be scheduled", lambda: _running(lasting) == SCENES.pods(), seconds=120
        )
        homes = {
            each["metadata"]["labels"]["app"]: each["spec"].get("nodeName", "") for each in lasting.pods()
        }
        lasting.apply(*SCENES.after)
        for team in SCENES.failing:
            break_accelerators(lasting, homes[team])
        yield Stage(lasting, seen, homes)


def break_accelerators(system: System, node: str) -> None:
    """Report on a Node, as EKS's monitoring agent does, that its accelerators have failed eleven minutes ago."""
    since = format_time(system.clock.now() - timedelta(minutes=11))
    bad = {"type": "AcceleratedHardwareReady", "status": "False", "lastTransitionTime": since}
    system.cluster.objects.patch("nodes", node, {"status": {"conditions": [bad]}}, subresource="status")


def _running(system: System) -> int:
    deployed = [each for each in system.pods() if each["metadata"].get("ownerReferences")]
    return sum(each["status"].get("phase") == "Running" for each in deployed)


HOMELESS = pod("homeless", nodeSelector={"team": "nobody"})
"""An unschedulable pod prevents no disruption. It waits throughout all tests of this module."""
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
        budget("guarded", maxUnavailable=0),
        pool("twice-guarded"),
        app("twice-guarded"),
        budget("twice-guarded", "one", maxUnavailable=1),
        budget("twice-guarded", "two", maxUnavailable=1),
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
def test_events_on_node_and_nodeclaim_name_the_rule_that_prevents_disruption(
    stage: Stage, team: str, reason: str, word: str
) -> None:
    stage.until_reported(team, reason, word, "Node", "NodeClaim")
    other = UNCONSOLIDATABLE if reason == BLOCKED else BLOCKED
    assert not [message for _, message in stage.seen.reports(team, other) if word in message]
    assert not stage.seen.ended(team)


@scene(before=[pool("misread"), app("misread", annotations={DO_NOT_DISRUPT: "soon"})])
def test_events_on_pods_report_the_effect_of_do_not_disrupt(stage: Stage) -> None:
    def reported_objects(reason: str) -> set[str]:
        return {
            e["involvedObject"]["name"].rpartition("-")[0] for e in stage.seen.events if e["reason"] == reason
        }

    stage.until(
        "an Event reports the invalid value", lambda: reported_objects("InvalidDoNotDisruptAnnotation")
    )
    stage.until(
        "an Event reports until when the pod is protected", lambda: reported_objects("DoNotDisruptUntil")
    )
    assert all(name.startswith("misread") for name in reported_objects("InvalidDoNotDisruptAnnotation"))
    assert all(name.startswith("for-an-hour") for name in reported_objects("DoNotDisruptUntil"))


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
def test_a_budget_of_zero_keeps_even_empty_nodes_and_has_an_event_on_the_nodepool(
    stage: Stage, team: str
) -> None:
    stage.until_reported(team, BLOCKED, "budgets", "NodePool")
    stage.until("it is Consolidatable", lambda: is_true(stage.seen.only(team), "Consolidatable"))
    assert not stage.seen.ended(team)


@scene(
    before=[
        pool("closed-on-leap-days", budgets=[{"nodes": "0", "schedule": "0 0 29 2 *", "duration": "1m"}]),
        app("closed-on-leap-days"),
    ],
    after=[app("closed-on-leap-days", 0)],
)
def test_a_budget_outside_its_schedule_limits_nothing(stage: Stage) -> None:
    stage.until("the empty node is gone", lambda: not stage.seen.now("closed-on-leap-days"))
    (name,) = stage.seen.names("closed-on-leap-days")
    assert reasons(stage.seen, name) == ["", "Empty"]


@scene(before=[pool("halves", budgets=NONE), app("halves", 3)], after=[app("halves", 0)])
def test_as_many_empty_nodes_end_together_as_the_budgets_percentage_rounded_up_allows(stage: Stage) -> None:
    stage.until(
        "all are Consolidatable, so that the budget alone decides",
        lambda: sum(is_true(claim, "Consolidatable") for claim in stage.seen.now("halves").values()) == 3,
    )
    stage.system.apply(pool("halves", budgets=[{"nodes": "50%"}]))
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
def test_policy_when_empty_removes_only_empty_nodes(stage: Stage) -> None:
    stage.until("the empty node is gone", lambda: len(stage.seen.now("when-empty")) == 1)
    assert stage.seen.ended("when-empty") == [stage.claim_of("leaves")]
    stage.until_reported("when-empty", UNCONSOLIDATABLE, "empty nodes only", "Node", "NodeClaim")


def reasons(seen: Observer, name: str) -> list[str]:
    """Return the reasons of a claim's DisruptionReason in order, each once; empty without the condition.

    On a busy machine, a move may be abandoned and proposed again.
    """
    return list(dict.fromkeys(seen.conditions(name, "DisruptionReason")))


def sequence(seen: Observer, team: str, old: str) -> list[str]:
    """Return the order of the steps in which a node was replaced, each step once."""
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
    before=[pool("cheaper", "c6a.4xlarge"), app("cheaper"), app("cheaper", cpu="14", name="big")],
    after=[pool("cheaper", "c6a.4xlarge", LARGE), app("cheaper", 0, name="big")],
)
def test_an_oversized_node_is_replaced_by_a_cheaper_one_step_by_step(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("cheaper")
    stage.until("it is replaced", lambda: old not in seen.now("cheaper"))
    assert sequence(seen, "cheaper", old) == IN_ORDER
    assert reasons(seen, old) == ["", "Underutilized"]
    labels = seen.only("cheaper")["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == LARGE
    for reason, kinds in (
        ("ConsolidationCandidate", ("Node", "NodeClaim")),
        ("DisruptionTerminating", ("Node", "NodeClaim")),
        ("DisruptionLaunching", ("NodeClaim",)),
    ):
        stage.until_reported("cheaper", reason, "", *kinds)
        assert {kind for kind, _ in seen.reports("cheaper", reason)} == {*kinds}
    assert not seen.reports("cheaper", "ConsolidationApproved"), "only policy Balanced publishes that"


@scene(
    before=[
        pool("balanced", "c6a.4xlarge", policy="Balanced"),
        app("balanced"),
        app("balanced", cpu="14", name="weight"),
    ],
    after=[pool("balanced", "c6a.4xlarge", LARGE, policy="Balanced"), app("balanced", 0, name="weight")],
)
def test_policy_balanced_approves_a_move_that_saves_enough(stage: Stage) -> None:
    old = stage.claim_of("balanced")
    stage.until_reported("balanced", "ConsolidationApproved", "saves", "Node", "NodeClaim")
    stage.until("it is replaced", lambda: old not in stage.seen.now("balanced"))


@scene(
    before=[pool("one-to-three", "c6a.2xlarge", after="Never"), app("one-to-three", 3)],
    after=[pool("one-to-three", LARGE, after="Never")],
)
def test_a_drifted_node_is_replaced_by_as_many_nodes_as_its_pods_need(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("one-to-three")
    stage.until("it is replaced", lambda: old not in seen.now("one-to-three"))
    assert len(seen.now("one-to-three")) == 3
    assert sequence(seen, "one-to-three", old) == IN_ORDER
    assert seen.conditions(old, "Drifted") == ["", "RequirementsDrifted"]
    assert reasons(seen, old) == ["", "Drifted"]


@scene(
    before=[
        pool("empty-first", budgets=[{"nodes": "1"}], after="Never"),
        app("empty-first"),
        app("empty-first", name="emptied"),
    ],
    after=[app("empty-first", 0, name="emptied")],
)
def test_drifted_nodes_without_pods_end_first(stage: Stage) -> None:
    stage.until("one node is empty", lambda: not stage.system.pods("emptied"))
    stage.until("nodesmith has seen that", lambda: not stage.system.reported("emptied"))
    stage.system.apply(pool("empty-first", budgets=[{"nodes": "1"}], after="Never", age="new"))
    stage.until("both are ending", lambda: len(stage.seen.ended("empty-first")) == 2)
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
def test_a_budget_for_drift_keeps_only_drifted_nodes_and_reverted_drift_is_cleared(
    stage: Stage,
) -> None:
    seen = stage.seen
    stage.until("the empty one is gone", lambda: len(seen.now("drift-waits")) == 1)
    assert reasons(seen, stage.claim_of("parts")) == ["", "Empty"]
    stage.until("the other has drifted", lambda: is_true(seen.only("drift-waits"), "Drifted"))
    stage.until_reported("drift-waits", BLOCKED, "budgets", "NodePool")

    stage.system.apply(pool("drift-waits", budgets=NONE))

    kept = stage.claim_of("drift-waits")
    stage.until(
        "the condition Drifted is removed", lambda: not condition(seen.only("drift-waits"), "Drifted")
    )
    assert seen.conditions(kept, "Drifted") == ["", "NodePoolDrifted", ""]
    assert not seen.is_tainted(seen.only("drift-waits"))


@scene(
    before=[pool("hurried", grace="1m", after="Never"), app("hurried", annotations=PODS_ASK)],
    after=[pool("hurried", grace="1m", after="Never", age="new")],
)
def test_a_drifted_node_with_a_termination_grace_period_ends_despite_do_not_disrupt(stage: Stage) -> None:
    old = stage.claim_of("hurried")
    stage.until("it is replaced", lambda: old not in stage.seen.now("hurried"))
    assert reasons(stage.seen, old) == ["", "Drifted"]


@scene(
    before=[pool("bound", after="Never"), app("bound", zone="us-east-1a")],
    after=[pool("bound", after="Never", zone="us-east-1b")],
)
def test_a_drifted_node_whose_pod_could_not_be_rescheduled_stays_with_an_event(stage: Stage) -> None:
    stage.until_reported("bound", BLOCKED, "would have no node", "Node", "NodeClaim")
    bound = stage.claim_of("bound")
    stage.until("its NodeClaim says so", lambda: condition(stage.seen.now("bound")[bound], "Drifted"))
    assert stage.seen.conditions(bound, "Drifted") == ["", "RequirementsDrifted"]
    assert not stage.seen.ended("bound")


@scene(
    before=[repairing("repaired", "On"), app("repaired"), repairing("reported", "Report"), app("reported")],
    failing=["repaired", "reported"],
)
def test_an_unhealthy_node_is_replaced_or_reported_as_its_nodepool_says(stage: Stage) -> None:
    old = stage.claim_of("repaired")
    stage.until("it is replaced", lambda: old not in stage.seen.now("repaired"))
    assert reasons(stage.seen, old) == ["", "Unhealthy"]
    stage.until_reported("repaired", "NodeRepair", "AcceleratedHardwareReady has been False", "Node")
    stage.until_reported("reported", "NodeUnhealthy", "AcceleratedHardwareReady has been False", "Node")
    assert not stage.seen.ended("reported")


@scene(before=[pool("later", after="720h"), app("later")])
def test_nodes_within_consolidate_after_get_no_events(stage: Stage) -> None:
    stage.until_reported("full", UNCONSOLIDATABLE, "cheaper", "Node", "NodeClaim")
    assert stage.seen.conditions(stage.claim_of("later"), "Consolidatable") == [""]
    assert not stage.seen.reports("later", UNCONSOLIDATABLE)


@scene(before=[pool("marked", budgets=NONE), app("marked")])
def test_marks_of_a_disruption_that_is_not_in_progress_are_removed(stage: Stage) -> None:
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

    stage.until("the marks are gone", is_clean)
    stage.until("they were there", lambda: "Underutilized" in stage.seen.conditions(name, "DisruptionReason"))


@scene(before=[pool("not-to-be-had", "c6i.xlarge", "c6i.large"), app("not-to-be-had")])
def test_a_node_whose_replacement_has_no_capacity_stays_and_loses_its_marks(stage: Stage) -> None:
    seen, old = stage.seen, stage.claim_of("not-to-be-had")
    stage.until_reported("not-to-be-had", "ConsolidationRejected", "is not available", "Node", "NodeClaim")

    def is_unmarked() -> bool:
        claim = seen.now("not-to-be-had")[old]
        return not condition(claim, "DisruptionReason") and not seen.is_tainted(claim)

    # On a busy machine, a move may be over before its mark is written, and is proposed again.
    stage.until(
        "it has had marks, and they are gone",
        lambda: len(seen.conditions(old, "DisruptionReason")) >= 3 and is_unmarked(),
    )
    assert old not in seen.ended("not-to-be-had")
    assert seen.conditions(old, "DisruptionReason")[:3] == ["", "Underutilized", ""]


def test_the_unschedulable_pod_waited_throughout(stage: Stage) -> None:
    (homeless,) = [each for each in stage.system.pods() if each["metadata"]["name"] == "homeless"]
    assert homeless["status"]["phase"] == "Pending"
    assert all(node["metadata"]["labels"][NODEPOOL] != "nobody" for node in stage.system.nodes())
