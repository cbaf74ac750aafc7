"""How a node terminates: in which order, what protects a pod, what a claim waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.candidates import holder
from nodesmith.decisions.reporting.events import of_waiting
from nodesmith.decisions.termination import next_steps, to_check, to_end
from nodesmith.decisions.termination.evictions import (
    Allowances,
    drain,
    not_evictable,
    protected_for,
    refuses_disruption,
)
from nodesmith.decisions.termination.waiting import why_not_gone
from nodesmith.model.apimachinery.labels import (
    DISRUPTED,
    DO_NOT_DISRUPT,
    EXCLUDE_FROM_LOAD_BALANCERS,
    TERMINATION_FINALIZER,
    TERMINATION_TIMESTAMP,
    Effect,
    Taint,
    Toleration,
)
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.commands import (
    Close,
    DeletePods,
    Evict,
    Release,
    TerminateInstances,
    TerminationCommand,
    Wait,
)
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.disruption import Budget
from nodesmith.model.karpenter.nodeclaimobjects import conditions_of, manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.nodes import Node, VolumeAttachment
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith_formats.nodeclaims import shown_claim
from tests import builders
from tests.builders import NOW

CLAIM = builders.claim("default-a", phase=Phase.INITIALIZED, instance_id="i-default-a")
ENDING = CLAIM.terminating("Deleted", "somebody did", NOW - timedelta(minutes=1))
WEB = builders.shape(app="web")


def closed(name: str = "node-a", claim: NodeClaim = CLAIM, **fields: Any) -> Node:
    """Return the claim's Node as it is once it is closed to new pods."""
    return builders.node(
        name,
        provider_id=claim.provider_id,
        taints=[DISRUPTED],
        labels={EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"},
        deleting=True,
        **fields,
    )


def shown(claim: NodeClaim, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": claim.name, "deletionTimestamp": "2026-11-21T11:59:00Z", **metadata}}


def seen(pods: Iterable[Pod] = (), **fields: Any) -> Snapshot:
    return builders.snapshot(
        pods=tuple(pods), **{"nodes": (closed(),), "nodeclaims": (shown(CLAIM),), **fields}
    )


def steps(
    snapshot: Snapshot, *claims: NodeClaim, instances: Sequence[str] = (), now: datetime = NOW
) -> list[TerminationCommand]:
    """Return the next commands. `instances` are the states of the first claim's instances, if EC2 was asked."""
    claims = claims or (ENDING,)
    found = [instance(claims[0], state) for state in instances]
    checked = [claims[0].name] if instances else []
    return next_steps(claims, snapshot, {claims[0].name: tuple(found)}, checked, now)


def instance(of: NodeClaim, state: str) -> Instance:
    return Instance(f"i-{of.name}", of.name, "m5.large", builders.ZONES[0], "spot", "ami-1", state, NOW)


def pods_of(commands: Iterable[TerminationCommand], kind: type[Evict | DeletePods] = Evict) -> list[str]:
    return [pod.pod for c in commands if isinstance(c, kind) for pod in c.pods]


def budget(allowed: int, app: str = "web", **fields: Any) -> PodDisruptionBudget:
    known: dict[str, Any] = {
        "current_healthy": 3,
        "desired_healthy": 3 - allowed,
        "expected_pods": 3,
        "always_allow_unhealthy": False,
        "min_available": "",
        "max_unavailable": str(allowed),
    }
    selector = parse_selector({"matchLabels": {"app": app}})
    key = fields.pop("key", f"default/{app}")
    return PodDisruptionBudget(key, selector, allowed, **(known | fields))


@pytest.mark.parametrize("what", ["NodeClaim", "Node"])
def test_a_claim_ends_when_it_or_its_node_is_deleted(what: str) -> None:
    nodes = (closed(),) if what == "Node" else ()
    nodeclaims = (shown(CLAIM),) if what == "NodeClaim" else ()
    snapshot = builders.snapshot(nodes=nodes, nodeclaims=nodeclaims)
    (begun,) = to_end([CLAIM], snapshot, NOW)
    assert (begun.claim.phase, begun.claim.cause) == (Phase.TERMINATING, "Deleted")
    assert begun.claim.message.startswith(f"{what} ")
    assert to_end([begun.claim], snapshot, NOW) == []


@pytest.mark.parametrize(("budget", "ends"), [("10%", 1), ("2", 2), ("0", 1), ("100%", 5)])
def test_a_deleted_nodepool_s_nodes_go_within_its_budgets(budget: str, ends: int) -> None:
    pool = [replace(CLAIM, name=f"default-{n}", budgets=(Budget(budget),)) for n in range(5)]
    snapshot = builders.snapshot(nodeclaims=tuple(map(shown, pool)), nodepools=())
    begun = to_end(pool, snapshot, NOW)
    assert len(begun) == ends
    ending = {each.claim.name: each.claim for each in begun}
    later = [ending.get(claim.name, claim) for claim in pool]
    assert to_end(later, snapshot, NOW) == []
    kept = builders.snapshot(nodeclaims=tuple(map(shown, pool)), nodepools=(builders.nodepool_manifest(),))
    assert len(to_end(pool, kept, NOW)) == 5, "users who delete NodeClaims one by one do so on purpose"


def test_a_deadline_does_not_wait_for_a_budget() -> None:
    pool = [replace(CLAIM, name=f"default-{n}", termination_grace_period="30s") for n in range(3)]
    late = [replace(claim, budgets=(Budget("0"),)) for claim in pool]
    snapshot = builders.snapshot(nodeclaims=tuple(map(shown, late)), nodepools=())
    assert len(to_end(late, snapshot, NOW)) == 3


def test_nothing_ends_without_a_deletion() -> None:
    snapshot = builders.snapshot(nodes=(builders.node(provider_id=CLAIM.provider_id),))
    assert to_end([CLAIM], snapshot, NOW) == []


@pytest.mark.parametrize(
    ("grace", "annotation", "minutes"),
    [
        ("10m", None, 9),
        ("10m", "2026-11-21T12:01:00Z", 1),
        (None, "2026-11-21T12:01:00Z", 1),
        ("10m", "soon", 9),
    ],
)
def test_the_deadline_is_the_grace_after_the_deletion_or_an_earlier_annotated_time(
    grace: str | None, annotation: str | None, minutes: int
) -> None:
    noted: Any = {"karpenter.sh/nodeclaim-termination-timestamp": annotation} if annotation else {}
    snapshot = builders.snapshot(nodeclaims=(shown(CLAIM, annotations=noted),))
    (begun,) = to_end([replace(CLAIM, termination_grace_period=grace)], snapshot, NOW)
    assert begun.claim.deadline == NOW + timedelta(minutes=minutes)


def test_without_a_grace_there_is_no_deadline() -> None:
    (begun,) = to_end([CLAIM], seen(), NOW)
    assert begun.claim.deadline is None


def test_a_node_is_closed_before_its_pods_are_evicted() -> None:
    open_node = builders.node("node-a", provider_id=CLAIM.provider_id)
    commands = steps(seen(builders.bind(WEB, "node-a"), nodes=(open_node,)))
    assert [type(c) for c in commands[:2]] == [Close, Evict]
    assert not any(isinstance(c, Close) for c in steps(seen(builders.bind(WEB, "node-a"))))


def test_pods_go_tier_by_tier() -> None:
    tiers = [
        WEB,
        builders.daemon("agent"),
        replace(builders.shape(app="dns"), critical=True),
        replace(builders.daemon("proxy"), critical=True),
    ]
    left = [pod for of in tiers for pod in builders.bind(of, "node-a")]
    for of in tiers:
        assert pods_of(steps(seen(left))) == [pod.key for pod in left if pod.shape is of]
        left = [pod for pod in left if pod.shape is not of]


def test_static_pods_and_those_that_tolerate_the_taint_stay() -> None:
    tolerant = builders.shape(
        app="guard", tolerations=[{"key": DISRUPTED.key, "operator": "Exists", "effect": "NoSchedule"}]
    )
    mirror = builders.shape(app="static", owner="Node/node-a")
    pods = [*builders.bind(tolerant, "node-a"), *builders.bind(mirror, "node-a")]
    (command,) = steps(seen(pods))
    assert isinstance(command, TerminateInstances)


def test_the_drain_does_not_wait_for_a_pod_that_should_have_ended_a_minute_ago() -> None:
    stuck = builders.bind(WEB, "node-a", deleting=True, deletion_at=NOW - timedelta(seconds=61))
    assert isinstance(steps(seen(stuck))[0], TerminateInstances)
    late = builders.bind(WEB, "node-a", deleting=True, deletion_at=NOW - timedelta(seconds=59))
    assert not any(isinstance(c, TerminateInstances) for c in steps(seen(late)))


def test_budgets_are_used_for_the_node_that_began_to_end_first() -> None:
    later = builders.claim("default-b", phase=Phase.INITIALIZED, instance_id="i-default-b").terminating(
        "Deleted", "", NOW - timedelta(seconds=20)
    )
    pods = [*builders.bind(WEB, "node-a", 2), *builders.bind(WEB, "node-b", 2)]
    snapshot = seen(
        pods,
        nodes=(closed(), closed("node-b", later)),
        nodeclaims=(shown(CLAIM), shown(later)),
        budgets=(budget(3),),
    )
    assert pods_of(steps(snapshot, ENDING, later)) == [pods[0].key, pods[1].key, pods[2].key]


def test_an_eviction_names_the_budget_that_it_counts_against() -> None:
    free = builders.bind(builders.shape(app="free"), "node-a")
    (command,) = steps(seen([*builders.bind(WEB, "node-a"), *free], budgets=(budget(1),)))
    assert isinstance(command, Evict)
    assert sorted(pod.budget for pod in command.pods) == ["", "default/web"]


def test_a_pod_that_two_budgets_guard_is_not_evicted() -> None:
    pods = builders.bind(WEB, "node-a")
    both = (budget(3), replace(budget(3), key="default/other"))
    assert pods_of(steps(seen(pods, budgets=both))) == []
    (waiting,) = [c for c in steps(seen(pods, budgets=both)) if isinstance(c, Wait)]
    assert waiting.claim.reason == "MultiplePodDisruptionBudgets"
    assert "default/web and default/other" in waiting.claim.message


@pytest.mark.parametrize(
    ("ready", "always", "healthy", "taken"),
    [(True, True, 3, False), (False, True, 1, True), (False, False, 3, True), (False, False, 2, False)],
)
def test_a_budget_that_allows_nothing_lets_unready_pods_go_by_its_policy(
    ready: bool, always: bool, healthy: int, taken: bool
) -> None:
    guard = budget(0, always_allow_unhealthy=always, current_healthy=healthy, desired_healthy=3)
    (pod,) = builders.bind(WEB, "node-a", ready=ready)
    assert Allowances([guard]).take(pod) is taken


@pytest.mark.parametrize("budgets", [1, 2])
def test_a_pod_whose_phase_is_pending_goes_whatever_budgets_say(budgets: int) -> None:
    guards = tuple(
        budget(0, key=f"default/{n}", current_healthy=0, desired_healthy=1) for n in range(budgets)
    )
    pods = builders.bind(WEB, "node-a", ready=False, starting=True)
    found = steps(seen(pods, budgets=guards))
    assert pods_of(found) == [pods[0].key]
    assert [pod.budget for c in found if isinstance(c, Evict) for pod in c.pods] == [""]
    assert not not_evictable(seen(pods, budgets=guards), [ENDING], NOW)(pods[0])


def test_a_node_is_no_candidate_while_a_budget_keeps_its_starting_pod() -> None:
    pods = builders.bind(WEB, "node-a", ready=False, starting=True)
    guard = budget(0, current_healthy=0, desired_healthy=1)
    blocker = holder(pods, Allowances([guard]), NOW)
    assert blocker is not None
    assert blocker.rule == "PodDisruptionBudget"


@pytest.mark.parametrize(
    ("annotation", "span"),
    [
        ("true", timedelta.max),
        ("1h30m", timedelta(minutes=90)),
        ("1.5m", timedelta(seconds=90)),
        ("90s", timedelta(seconds=90)),
        ("2562047h", timedelta(hours=2562047)),
        (".5h", timedelta(minutes=30)),
        ("1.h", timedelta(hours=1)),
        ("+1h", timedelta(hours=1)),
        ("60000000\u03bcs", timedelta(minutes=1)),
        ("3600000000000ns", timedelta(hours=1)),
        ("0.0000000001h0.5h", timedelta(minutes=30)),
        ("2562048h", None),
        ("99999999h", None),
        ("999999999h" * 30, None),
        ("0s", None),
        ("yes", None),
        ("-5m", None),
        ("+-5m", None),
        (".h", None),
        ("1h ", None),
        ("5", None),
        ("", None),
        (None, None),
    ],
)
def test_do_not_disrupt_is_true_or_a_duration(annotation: str | None, span: timedelta | None) -> None:
    assert protected_for(annotation) == span


def test_a_duration_counts_from_the_start_of_the_pod_and_protects_one_that_has_not_started() -> None:
    of = replace(WEB, annotations={DO_NOT_DISRUPT: "10m"})
    (pod,) = builders.bind(of, "node-a")
    assert refuses_disruption(pod, NOW)
    assert refuses_disruption(replace(pod, started_at=NOW - timedelta(minutes=9)), NOW)
    assert not refuses_disruption(replace(pod, started_at=NOW - timedelta(minutes=10)), NOW)


def test_the_drain_waits_for_a_protected_pod_and_names_it() -> None:
    protected = builders.bind(replace(WEB, annotations={DO_NOT_DISRUPT: "true"}), "node-a")
    daemon = builders.bind(builders.daemon(), "node-a")
    commands = steps(seen([*protected, *daemon]))
    assert pods_of(commands) == []
    (waiting,) = commands
    assert isinstance(waiting, Wait)
    assert waiting.claim.reason == "DoNotDisrupt"
    assert protected[0].key in waiting.claim.message
    assert steps(seen([*protected, *daemon]), waiting.claim) == []


def test_past_its_deadline_nothing_protects_a_pod() -> None:
    protected = replace(WEB, annotations={DO_NOT_DISRUPT: "true"}, grace_seconds=60)
    brief = replace(builders.shape(app="brief"), grace_seconds=5)
    pods = [*builders.bind(protected, "node-a"), *builders.bind(brief, "node-a")]
    found = drain(pods, Allowances([budget(0)]), NOW + timedelta(seconds=30), NOW)
    assert [(pod.shape, grace) for pod, grace in found.delete] == [(protected, 30)]
    late = drain(pods, Allowances([budget(0)]), NOW - timedelta(seconds=1), NOW)
    assert {grace for _, grace in late.delete} == {1}
    assert len(late.delete) == 2


def test_a_pod_with_the_longest_grace_that_kubernetes_accepts_stops_no_drain() -> None:
    endless = builders.shape(app="endless", terminationGracePeriodSeconds=2**63 - 1)
    found = drain(builders.bind(endless, "node-a"), Allowances([]), NOW + timedelta(seconds=90), NOW)
    assert [grace for _, grace in found.delete] == [90]


@pytest.mark.parametrize("annotation", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_an_annotated_deadline_in_the_first_year_is_one_in_the_past_or_none(annotation: str) -> None:
    ending = shown(CLAIM, annotations={TERMINATION_TIMESTAMP: annotation})
    (begun,) = to_end([CLAIM], builders.snapshot(nodeclaims=(ending,)), NOW)
    drained = drain(builders.bind(WEB, "node-a"), Allowances([]), begun.claim.deadline, NOW)
    assert len([*drained.delete, *drained.evict]) == 1


def test_an_annotated_deadline_at_the_end_of_time_stops_no_drain() -> None:
    ending = shown(CLAIM, annotations={TERMINATION_TIMESTAMP: "9999-12-31T23:59:59Z"})
    (begun,) = to_end([CLAIM], builders.snapshot(nodeclaims=(ending,)), NOW)
    going = [
        replace(pod, deleting=True, deletion_at=NOW + timedelta(seconds=30))
        for pod in builders.bind(WEB, "node-a")
    ]
    assert drain(going, Allowances([]), begun.claim.deadline, NOW).left == tuple(going)


@pytest.mark.parametrize(
    ("cause", "lead", "late", "graces"),
    [
        ("Deleted", 0, -1, []),
        ("Deleted", 0, 0, [30]),
        ("Deleted", 0, 0.4, [30]),
        ("Deleted", 0, 2, [28]),
        ("Deleted", 0, 29.5, [1]),
        ("SpotInterrupted", 12, -1, []),
        ("SpotInterrupted", 12, 0, [30]),
        ("SpotInterrupted", 12, 12, [30]),
    ],
)
def test_a_pod_is_deleted_at_the_last_moment_that_leaves_it_its_grace(
    cause: str, lead: int, late: float, graces: list[int]
) -> None:
    """If EC2 takes the instance, twelve seconds sooner: EC2 does not wait."""
    deadline = NOW + timedelta(minutes=1)
    pods = builders.bind(replace(WEB, annotations={DO_NOT_DISRUPT: "true"}, grace_seconds=30), "node-a")
    ending = CLAIM.terminating(cause, "", NOW - timedelta(minutes=1), deadline)
    now = deadline - timedelta(seconds=30 + lead - late)
    given = [
        pod.grace_seconds
        for command in steps(seen(pods), ending, now=now)
        if isinstance(command, DeletePods)
        for pod in command.pods
    ]
    assert given == graces


def test_a_terminating_pod_that_would_outlive_the_deadline_is_deleted_again() -> None:
    slow = builders.bind(WEB, "node-a", deleting=True, deletion_at=NOW + timedelta(minutes=10))
    ending = replace(ENDING, deadline=NOW + timedelta(seconds=30))
    assert pods_of(steps(seen(slow), ending), DeletePods) == [slow[0].key]


@pytest.mark.parametrize(("later", "hurried"), [(0, 0), (5, 0), (6, 1)])
def test_a_terminating_pod_that_would_outlive_the_deadline_by_seconds_keeps_its_grace(
    later: int, hurried: int
) -> None:
    deadline = NOW + timedelta(seconds=30)
    ends = deadline + timedelta(seconds=later)
    found = drain(
        builders.bind(WEB, "node-a", deleting=True, deletion_at=ends), Allowances(()), deadline, NOW
    )
    assert len(found.delete) == hurried


def test_at_its_deadline_the_instance_is_terminated_whatever_runs_on_it() -> None:
    protected = builders.bind(replace(WEB, annotations={DO_NOT_DISRUPT: "true"}), "node-a")
    held = VolumeAttachment("node-a", "pv-1")
    last = steps(seen(protected, attachments=(held,)), replace(ENDING, deadline=NOW))[-1]
    assert isinstance(last, TerminateInstances)
    reported = {c.type: (c.status, c.reason, c.message) for c in conditions_of(last.claim)}
    why = "TerminationGracePeriodElapsed"
    assert reported["Drained"] == ("False", why, "pods left at the deadline: 1")
    assert reported["VolumesDetached"] == ("False", why, "volumes left at the deadline: 1")
    assert reported["InstanceTerminating"][0] == "True"
    read = shown_claim(manifest(last.claim), NOW).value
    assert read is not None
    assert (read.phase, read.terminated_at) == (Phase.TERMINATED, NOW)


def test_a_phase_that_is_complete_at_the_deadline_is_not_reported_as_cut_short() -> None:
    last = steps(seen(), replace(ENDING, deadline=NOW))[-1]
    reported = {c.type: (c.status, c.message) for c in conditions_of(last.claim)}
    assert reported["Drained"] == reported["VolumesDetached"] == ("True", "")


def test_an_empty_node_is_kept_for_five_seconds() -> None:
    begun = CLAIM.terminating("Deleted", "", NOW - timedelta(seconds=4))
    assert steps(seen(), begun) == []
    assert isinstance(steps(seen(), begun, now=NOW + timedelta(seconds=1))[0], TerminateInstances)


def test_the_claim_waits_for_volumes_but_not_for_those_of_pods_that_stay() -> None:
    tolerant = builders.shape(app="guard", tolerations=[{"operator": "Exists"}])
    stays = builders.bind(tolerant, "node-a")
    held = VolumeAttachment("node-a", "pv-1")
    own = VolumeAttachment("node-a", "pv-2", (stays[0].key,))
    (advanced, *_) = steps(seen(stays, attachments=(held, own)))
    assert advanced.claim.phase is Phase.DRAINED
    waiting = why_not_gone(advanced.claim, seen(stays, attachments=(held, own)), NOW)
    assert waiting is not None
    assert (waiting.reason, waiting.on) == ("AwaitingVolumeDetachment", "PersistentVolume/pv-1")
    assert isinstance(steps(seen(stays, attachments=(own,)), advanced.claim)[0], TerminateInstances)


def test_each_phase_is_recorded_with_its_cause() -> None:
    (last,) = steps(seen())
    assert [step.phase for step in last.claim.history[-4:]] == [
        Phase.TERMINATING,
        Phase.DRAINED,
        Phase.DETACHED,
        Phase.TERMINATED,
    ]
    assert last.claim.history[-4].cause == "Deleted: somebody did"


@pytest.mark.parametrize(("states", "released"), [(["terminated"], True), (["shutting-down"], False)])
def test_a_claim_is_released_once_ec2_shows_its_instance_as_terminated(
    states: list[str], released: bool
) -> None:
    done = replace(ENDING, phase=Phase.TERMINATED)
    assert to_check([done], seen()) == [done.name]
    commands = steps(seen(), done, instances=states)
    assert [type(c) for c in commands] == ([Release] if released else [])


def test_a_claim_whose_instance_is_gone_is_released_and_its_pods_are_deleted_at_once() -> None:
    pods = builders.bind(WEB, "node-a")
    deletion, release = steps(seen(pods), instances=["terminated"])
    assert isinstance(deletion, DeletePods)
    assert [(pod.pod, pod.grace_seconds) for pod in deletion.pods] == [(pods[0].key, 0)]
    assert isinstance(release, Release)
    assert release.claim.instance_gone_at == NOW


@pytest.mark.parametrize("cause", ["Deleted", InterruptionCause.TERMINATED])
@pytest.mark.parametrize(
    ("reported", "known", "ended"),
    [
        (NOW - timedelta(seconds=40), None, NOW - timedelta(seconds=40)),
        (NOW - timedelta(seconds=40), NOW, NOW - timedelta(seconds=40)),
        (NOW - timedelta(seconds=40), NOW - timedelta(seconds=50), NOW - timedelta(seconds=50)),
        (NOW - timedelta(hours=2), NOW, NOW - timedelta(hours=1)),
        (NOW + timedelta(hours=1), None, NOW),
        (None, NOW, NOW),
        (None, None, None),
    ],
    ids=[
        "noticed late",
        "recorded late",
        "recorded before",
        "before its launch",
        "later",
        "untold",
        "unknown",
    ],
)
def test_a_claim_has_the_time_at_which_ec2_says_that_its_instance_ended(
    cause: str, reported: datetime | None, known: datetime | None, ended: datetime | None
) -> None:
    launched = replace(CLAIM, launched_at=NOW - timedelta(hours=1)).terminating(cause, "", NOW)
    claim = replace(launched, phase=Phase.TERMINATED if known else Phase.TERMINATING, terminated_at=known)
    found = replace(instance(claim, "terminated"), state_since=reported)
    (release,) = next_steps([claim], seen(), {claim.name: (found,)}, [claim.name], NOW)
    assert isinstance(release, Release)
    assert release.claim.terminated_at == ended


@pytest.mark.parametrize(
    ("cause", "state", "is_told"),
    [
        (InterruptionCause.TERMINATED, "shutting-down", True),
        (InterruptionCause.STOPPED, "stopped", True),
        ("Expired", "stopped", False),
    ],
)
def test_an_instance_that_still_shuts_down_has_ec2s_time_but_stopped_warm_capacity_does_not(
    cause: str, state: str, is_told: bool
) -> None:
    before, at = NOW - timedelta(seconds=40), NOW + timedelta(seconds=10)
    claim = CLAIM.terminating(cause, "", NOW)
    found = replace(instance(claim, state), state_since=before)
    *_, last = next_steps([claim], seen(), {claim.name: (found,)}, [claim.name], at)
    assert isinstance(last, TerminateInstances)
    assert last.claim.terminated_at == (before if is_told else at)


BACKUP = "example.com/backup"
GONE = replace(
    ENDING,
    phase=Phase.TERMINATED,
    drained_at=NOW,
    detached_at=NOW,
    terminated_at=NOW,
    instance_gone_at=NOW,
)


def test_a_claim_waits_for_its_node_and_names_the_finalizer_that_holds_it() -> None:
    node = closed(finalizers=(BACKUP,))
    (waiting,) = steps(seen(nodes=(node,)), GONE)
    assert isinstance(waiting, Wait)
    assert waiting.claim.reason == "AwaitingNodeDeletion"
    assert waiting.claim.message == f"Node node-a is held by finalizer {BACKUP} of another controller"
    assert steps(seen(nodes=(node,)), waiting.claim) == []
    reported = {c.type: (c.status, c.message) for c in conditions_of(waiting.claim)}
    assert reported["InstanceTerminating"] == ("True", waiting.claim.message)
    assert {(e.kind, e.name) for e in of_waiting(replace(waiting.claim, node_name="node-a"))} == {
        ("NodeClaim", CLAIM.name),
        ("Node", "node-a"),
    }
    both = closed(finalizers=(BACKUP, "example.com/audit"))
    (again,) = steps(seen(nodes=(both,)), waiting.claim)
    assert again.claim.message.endswith(f"finalizers {BACKUP} and example.com/audit of other controllers")


def test_ec2_is_not_asked_again_for_an_instance_that_is_gone() -> None:
    assert to_check([GONE], seen(nodes=(closed(finalizers=(BACKUP,)),))) == []
    early = replace(GONE, phase=Phase.TERMINATING)
    assert to_check([early], seen(nodes=())) == []
    assert not any(isinstance(c, TerminateInstances) for c in steps(seen(nodes=()), early))


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (closed(finalizers=(TERMINATION_FINALIZER, BACKUP)),),
        (builders.node("node-a", provider_id=CLAIM.provider_id),),
        (closed("node-a", replace(CLAIM, provider_id="aws:///us-east-1a/i-other"), finalizers=(BACKUP,)),),
    ],
    ids=["not shown any more", "with our finalizer", "made anew", "another instance's by now"],
)
def test_a_claim_without_an_instance_is_released_unless_the_snapshot_shows_a_finalizer_on_its_node(
    nodes: tuple[Node, ...],
) -> None:
    """The API server is asked by name whether the Node is gone."""
    assert steps(seen(nodes=nodes), replace(GONE, node_name="node-a")) == [
        Release(replace(GONE, node_name="node-a"), "node-a")
    ]


def test_pods_on_a_held_node_without_an_instance_are_deleted() -> None:
    pods = builders.bind(WEB, "node-a")
    reported = replace(GONE, reason="AwaitingNodeDeletion")
    deletion, _ = steps(seen(pods, nodes=(closed(finalizers=(BACKUP,)),)), reported)
    assert isinstance(deletion, DeletePods)


def test_an_instance_that_ec2_does_not_describe_yet_does_not_count_as_gone() -> None:
    new = replace(ENDING, phase=Phase.TERMINATED, launched_at=NOW - timedelta(seconds=2))
    nothing = builders.snapshot()
    assert next_steps([new], nothing, {}, [new.name], NOW) == []
    (last,) = next_steps([new], nothing, {}, [new.name], NOW + timedelta(minutes=1))
    assert isinstance(last, Release)


def test_an_instance_that_ec2_did_not_know_at_its_termination_is_terminated_once_it_is_described() -> None:
    done = replace(ENDING, phase=Phase.TERMINATED, launched_at=NOW - timedelta(seconds=5))
    (again,) = next_steps(
        [done], builders.snapshot(), {done.name: (instance(done, "running"),)}, [done.name], NOW
    )
    assert isinstance(again, TerminateInstances)
    assert again.instances == ("i-default-a",)


def test_only_instances_whose_node_does_not_run_are_looked_up() -> None:
    assert to_check([ENDING], seen()) == []
    assert to_check([ENDING], seen(nodes=())) == [ENDING.name]
    assert to_check([CLAIM], seen(nodes=())) == []


def test_an_instance_may_still_appear_for_a_claim_that_was_being_launched() -> None:
    begun = builders.claim("default-p", phase=Phase.PENDING).terminating("Deleted", "", NOW)
    nothing = builders.snapshot()
    assert not any(isinstance(c, Release) for c in next_steps([begun], nothing, {}, [begun.name], NOW))
    later = NOW + timedelta(seconds=80)
    found = {begun.name: (instance(begun, "running"),)}
    (last,) = [
        c
        for c in next_steps([begun], nothing, found, [begun.name], later)
        if isinstance(c, TerminateInstances)
    ]
    assert last.instances == ("i-default-p",)
    assert isinstance(next_steps([begun], nothing, {}, [begun.name], later)[0], Release)


def test_the_obstacle_of_an_eviction_is_shown_with_the_budgets_figures() -> None:
    pods = builders.bind(WEB, "node-a", 2)
    waiting = why_not_gone(ENDING, seen(pods, budgets=(budget(0),)), NOW)
    assert waiting is not None
    assert waiting.on == "PodDisruptionBudget/default/web"
    assert "3 of 3 healthy, 3 needed (maxUnavailable 0), 0 may go; it never allows any" in waiting.message
    assert waiting.fix == "raise its maxUnavailable, or lower its minAvailable"


def test_pods_that_nothing_keeps_are_what_a_node_waits_for_until_they_leave() -> None:
    pods = builders.bind(WEB, "node-a", 2)
    waiting = why_not_gone(ENDING, seen(pods), NOW)
    assert waiting is not None
    first = min(pod.key for pod in pods)
    assert (waiting.reason, waiting.on) == ("Draining", f"Pod/{first}")
    assert waiting.message == f"pod {first} (and 1 more) will be evicted"
    assert waiting.since == ENDING.terminating_at
    late = replace(pods[1], deletion_at=NOW + timedelta(seconds=20), deleting=True)
    soon = replace(pods[0], deletion_at=NOW + timedelta(seconds=10), deleting=True)
    leaving = why_not_gone(ENDING, seen([late, soon]), NOW)
    assert leaving is not None
    assert leaving.on == f"Pod/{late.key}"
    assert f"pod {late.key} (and 1 more) is terminating" in leaving.message


def test_a_node_behind_others_keeps_its_message_whatever_its_budget_allows_them() -> None:
    """Otherwise each round of a drain would write each waiting claim again."""
    first = replace(
        ENDING, name="default-0", provider_id="aws:///a/i-0", terminating_at=NOW - timedelta(hours=1)
    )
    nodes = (closed("node-0", first), closed())
    pods = [*builders.bind(WEB, "node-0", 3), *builders.bind(WEB, "node-a", 3)]

    def waits(allowed: int, claim: NodeClaim) -> list[Wait]:
        now = seen(pods, nodes=nodes, nodeclaims=(), budgets=(budget(allowed),))
        commands = [c for c in steps(now, first, claim) if c.claim.name == claim.name]
        assert not any(isinstance(c, Evict) for c in commands)
        return [c for c in commands if isinstance(c, Wait)]

    (reported,) = waits(2, ENDING)
    assert reported.claim.reason == "PodDisruptionBudget"
    assert reported.claim.message.endswith("1 needed (maxUnavailable 2), 2 may go; used by nodes ahead of it")
    assert waits(2, reported.claim) == waits(0, reported.claim) == waits(1, reported.claim) == []


def test_a_wait_for_another_object_is_recorded_even_if_the_reason_is_the_same() -> None:
    """`default/we` does not match `default/web`, although it is a prefix of it."""
    (pod,) = builders.bind(WEB, "node-a")

    def waits(guard: str, claim: NodeClaim) -> list[Wait]:
        guarding = budget(0, key=f"default/{guard}")
        return [c for c in steps(seen([pod], budgets=(guarding,)), claim) if isinstance(c, Wait)]

    (first,) = waits("web", ENDING)
    assert waits("web", first.claim) == []
    (second,) = waits("we", first.claim)
    assert "PodDisruptionBudget default/we: " in second.claim.message
    assert waits("we", second.claim) == []


def test_tolerating_an_unknown_taint_does_not_let_pods_stay() -> None:
    other = Toleration("example.com/other", "Exists")
    of = replace(WEB, tolerations=(other,))
    assert Taint(DISRUPTED.key, Effect.NO_SCHEDULE) == DISRUPTED
    assert pods_of(steps(seen(builders.bind(of, "node-a")))) == ["default/on-node-a-0000"]
