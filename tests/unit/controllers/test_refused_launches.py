"""What the outcome of a launch or a start changes: for the claim, its NodePool, and the pools of capacity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.controllers.launching.launch import buy, buy_many, note_refused, start_many
from nodesmith.controllers.launching.pendingclaims import LEASE, carry_on, leased_until, resume_starts
from nodesmith.controllers.provisioning import provision
from nodesmith.decisions.provisioning import PlannedNode, decide
from nodesmith.errors import Conflict, Transient
from nodesmith.launcheffects import Allowance, Settled, launch, start
from nodesmith.model.ec2.launches import (
    Deferred,
    FleetShare,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    OfferingKey,
    Override,
    Refused,
    Shortfall,
    StartRefusal,
    SubnetShortfall,
    TemplateMissing,
    Unfulfilled,
)
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR
from nodesmith.model.karpenter.nodeclaims import ATTEMPTED_AT, NodeClaim, Phase
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.moves import Move, Stage
from nodesmith.model.ledger.moves import Reason as MoveReason
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.nodeclasses.status import Subnet
from tests import builders
from tests.builders import NOW, ZONES
from tests.fakes.cloud import FakeCloud
from tests.fakes.outside import ClusterPorts
from tests.smallworld.world import World, pod_manifest


class RefusingCloud(FakeCloud):
    reason = ""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        del repeated
        return [Refused(request.claim, self.reason, "said no") for request in requests]


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("Unauthorized", timedelta(minutes=3)),
        ("InstanceProfileNameInvalid", timedelta(seconds=15)),  # it may have been made a moment ago
    ],
)
def test_the_reason_of_a_refused_launch_determines_the_back_off_of_the_nodepool(
    reason: str, wait: timedelta
) -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    cloud = RefusingCloud(clock=world.clock)
    cloud.reason = reason

    outcome = provision(world.provisioning(cloud=cloud))

    backoff = world.store.nodepool_backoffs["default"]
    assert backoff.until - builders.NOW == wait
    assert reason in outcome.plan.unplaced[0].reason


POOL = OfferingKey("spot", "m5.large", ZONES[0])
OTHER = OfferingKey("spot", "c5.large", ZONES[0])
ZONE_ID = "use1-az1"
LACKING = "InsufficientInstanceCapacity"


def pending(name: str = "default-x1") -> NodeClaim:
    """Return a committed claim whose request has one offering."""
    row = Override("lt-1", POOL.instance_type, POOL.zone, "subnet-a", 0.04)
    request = LaunchRequest(name, "spot", (row,), {})
    launch = {**request.to_item(), ATTEMPTED_AT: NOW.isoformat()}
    return builders.claim(name, phase=Phase.PENDING, launch=launch)


def instance(claim: str = "default-x1", pool: OfferingKey = POOL) -> Instance:
    return Instance(f"i-{claim}", claim, pool.instance_type, pool.zone, "spot", "ami-1", "pending", NOW)


def settle(outside: ClusterPorts, *outcomes: LaunchOutcome) -> Settled:
    """Launch a claim for each outcome, which is EC2's."""
    claims = [pending(outcome.claim) for outcome in outcomes]
    ledger = outside.store.load()
    for claim in claims:
        outside.store.claims.setdefault(claim.name, claim)
    outside.cloud.answers.update({outcome.claim: outcome for outcome in outcomes})
    return launch(claims, [], ledger, lambda *_: None, outside.store, outside.cloud, outside.clock)


def saved(outside: ClusterPorts, name: str = "default-x1") -> NodeClaim:
    return outside.store.claims[name]


def test_without_claims_ec2_is_not_called() -> None:
    outside = ClusterPorts()
    assert settle(outside) == Settled()
    assert start([], outside.store.load(), outside.store, outside.cloud, outside.clock) == Settled()
    assert outside.cloud.calls == []


def test_a_launched_claim_advances_and_its_nodepool_s_back_off_ends() -> None:
    outside = ClusterPorts()
    outside.store.nodepool_backoffs["default"] = Backoff(NOW, 2, "Unauthorized")
    settled = settle(outside, Launched("default-x1", instance()))
    assert (settled.launched, settled.given_up) == (["default-x1"], [])
    assert (saved(outside).phase, saved(outside).instance_id) == (Phase.LAUNCHED, "i-default-x1")
    assert outside.store.nodepool_backoffs == {}
    assert not settled.is_throttled


def test_an_instance_of_another_claim_is_not_adopted() -> None:
    outside = ClusterPorts()
    outside.store.claims["default-x2"] = builders.claim("default-x2", instance_id="i-default-x1")
    settled = settle(outside, Launched("default-x1", instance()))
    assert (settled.launched, settled.given_up) == ([], ["default-x1"])
    assert (saved(outside).phase, saved(outside).reason) == (Phase.GIVEN_UP, "InstanceTaken")


def test_a_repeated_launch_adopts_its_own_instance() -> None:
    outside = ClusterPorts()
    outside.store.claims["default-x1"] = replace(pending(), instance_id="i-default-x1")
    assert settle(outside, Launched("default-x1", instance())).launched == ["default-x1"]


def test_a_claim_that_another_run_has_settled_counts_as_launched() -> None:
    outside = ClusterPorts()
    outside.store.claims["default-x1"] = replace(pending(), revision=5)
    assert settle(outside, Launched("default-x1", instance())).launched == ["default-x1"]
    assert saved(outside).revision == 5


def test_pools_and_subnets_without_capacity_are_avoided_and_the_claim_is_given_up() -> None:
    outside = ClusterPorts()
    short = (Shortfall(POOL, LACKING),)
    full = (SubnetShortfall("subnet-a", "InsufficientFreeAddressesInSubnet"),)
    settled = settle(outside, NoCapacity("default-x1", short, subnets=full))
    assert settled.given_up == ["default-x1"]
    assert settled.refused == {("default-x1", POOL, LACKING)}
    assert outside.store.unavailable == {POOL: Backoff(NOW + timedelta(minutes=3), 1, LACKING)}
    assert outside.store.subnet_backoffs.keys() == {"subnet-a"}
    assert (saved(outside).phase, saved(outside).reason) == (Phase.GIVEN_UP, "InsufficientCapacity")
    assert not settled.is_throttled


DENIED = "UnauthorizedOperation"


@pytest.mark.parametrize(("before", "waits"), [(599, False), (600, True)])
def test_offerings_that_are_denied_one_by_one_are_avoided_and_the_nodepool_waits_if_they_are_many(
    before: int, waits: bool
) -> None:
    outside = ClusterPorts()
    late = NOW + timedelta(minutes=2)
    pools = [OfferingKey("spot", f"m{number}.large", ZONES[1]) for number in range(before)]
    outside.store.unavailable = {pool: Backoff(late, 1, DENIED) for pool in pools}
    outside.store.unavailable[OTHER] = Backoff(late, 1, LACKING)
    refused = Refused("default-x1", "Unauthorized", "a policy denies it", (Shortfall(POOL, DENIED),))
    settled = settle(outside, refused)
    assert settled.given_up == ["default-x1"]
    assert settled.refused == {("default-x1", POOL, DENIED)}
    assert outside.store.unavailable[POOL] == Backoff(NOW + timedelta(minutes=3), 1, DENIED)
    assert (saved(outside).reason, saved(outside).message) == ("Unauthorized", "a policy denies it")
    assert ("default" in outside.store.nodepool_backoffs) == waits


def test_a_pool_that_served_a_launch_is_available_again_unless_it_was_interrupted() -> None:
    outside = ClusterPorts()
    late = NOW + timedelta(minutes=2)
    outside.store.unavailable = {
        POOL: Backoff(late, 1, LACKING),
        OTHER: Backoff(late, 1, InterruptionCause.SPOT),
    }
    two = Launched("default-x1", instance()), Launched("default-x2", instance("default-x2", OTHER))
    settle(outside, *two)
    assert outside.store.unavailable.keys() == {OTHER}


def test_a_zone_without_any_capacity_is_told_to_the_region() -> None:
    outside = ClusterPorts()
    kinds = [f"{series}.{size}" for series in ("c5", "m5") for size in ("l", "xl", "2xl", "4xl", "8xl")]
    short = tuple(Shortfall(OfferingKey("spot", kind, ZONES[0]), LACKING) for kind in kinds)
    settle(outside, NoCapacity("default-x1", short))
    budget = outside.store.budget[0]
    assert budget.lost == {("spot", ZONES[0]): NOW + timedelta(minutes=3)}
    assert budget.short_until is None


@pytest.mark.parametrize("nothing_begun", [True, False])
def test_a_launch_that_ec2_refused_for_now_may_be_repeated_at_once(nothing_begun: bool) -> None:
    outside = ClusterPorts()
    deferred = Deferred("default-x1", "RequestLimitExceeded", "later", nothing_begun)
    settled = settle(outside, deferred)
    assert settled.deferred == [deferred]
    assert settled.is_throttled == nothing_begun
    assert saved(outside).launch[ATTEMPTED_AT] == ("" if nothing_begun else None)
    assert (outside.store.budget[0].short_until is not None) == nothing_begun


class WithoutTemplates(FakeCloud):
    """EC2 fails before CreateFleet is called."""

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        del templates
        raise Transient("ec2:DescribeLaunchTemplates: InternalError")


def test_claims_whose_templates_cannot_be_made_may_be_launched_by_the_next_run() -> None:
    outside = ClusterPorts(cloud=WithoutTemplates())
    with pytest.raises(Transient, match="InternalError"):
        settle(outside, Deferred("default-x1", "", ""), Deferred("default-x2", "", ""))
    assert [saved(outside, f"default-x{n}").launch[ATTEMPTED_AT] for n in (1, 2)] == [None, None]


def test_the_next_run_finds_the_instance_of_a_call_whose_answer_was_lost() -> None:
    outside = ClusterPorts()
    settle(outside, Deferred("default-x1", "ReadTimeoutError", "no answer"))
    outside.cloud.instances["i-default-x1"] = instance()
    found = resume_launches(outside)
    assert (found.launched, saved(outside).instance_id) == (["default-x1"], "i-default-x1")


def test_a_call_that_gave_no_instance_is_not_repeated_at_once() -> None:
    outside = ClusterPorts()
    settled = settle(outside, Unfulfilled("default-x1", "InternalError", "try later"))
    assert (settled.given_up, settled.is_throttled) == (["default-x1"], True)
    assert settled.postponed == ["NodeClaim default-x1: InternalError: try later"]
    assert saved(outside).reason == "TemporarilyUnavailable"


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_missing_template_ends_the_claim_only_if_its_token_is_used_up(is_answered: bool) -> None:
    outside = ClusterPorts()
    settled = settle(outside, TemplateMissing("default-x1", is_answered))
    assert settled.given_up == (["default-x1"] if is_answered else [])
    assert [each.reason for each in settled.deferred] == ([] if is_answered else ["LaunchTemplateNotFound"])
    assert saved(outside).phase is (Phase.GIVEN_UP if is_answered else Phase.PENDING)
    assert saved(outside).reason == ("LaunchTemplateNotFound" if is_answered else "")
    assert is_answered or saved(outside).launch[ATTEMPTED_AT] is None


def test_each_refused_offering_is_counted_with_its_zone_id() -> None:
    metrics = Metrics()
    refused = {("default-x1", POOL, LACKING), ("default-x2", replace(POOL, zone="us-east-1x"), LACKING)}
    status = builders.nodeclass_status(subnets=(Subnet("subnet-a", ZONES[0], ZONE_ID),))
    note_refused(metrics, Settled(refused=refused), builders.ledger(nodeclasses={"default": status}))
    counted = metrics.take().counters["cloudprovider_instance_launch_failures_total"]
    about = {"capacity_type": "spot", "reason": LACKING}
    assert {tuple(sorted(dict(labels).items())): count for labels, count in counted.items()} == {
        tuple(sorted({**about, "zone": ZONES[0], "zone_id": ZONE_ID}.items())): 1,
        tuple(sorted({**about, "zone": "us-east-1x", "zone_id": ""}.items())): 1,
    }


class RefusingStart(FakeCloud):
    refusal = StartRefusal("", "")

    def start(self, instances: Collection[str]) -> Mapping[str, StartRefusal]:
        return dict.fromkeys(instances, self.refusal)


def starting(outside: ClusterPorts) -> NodeClaim:
    """Return a claim of a stopped instance, which is to be started."""
    known = {"instance_type": POOL.instance_type, "zone": POOL.zone, "capacity_type": "spot"}
    claim = builders.claim(
        phase=Phase.STARTING, instance_id="i-1", launch={ATTEMPTED_AT: NOW.isoformat()}, **known
    )
    outside.store.claims[claim.name] = claim
    return claim


def refuse(outside: ClusterPorts, refusal: StartRefusal) -> Settled:
    cloud = RefusingStart()
    cloud.refusal = refusal
    return start([starting(outside)], outside.store.load(), outside.store, cloud, outside.clock)


def test_an_instance_without_capacity_for_its_start_is_given_up_and_its_pool_avoided() -> None:
    outside = ClusterPorts()
    settled = refuse(outside, StartRefusal(LACKING, "none left", is_short=True))
    assert (settled.given_up, settled.launched, settled.deferred) == (["default-x1"], [], [])
    assert (saved(outside).phase, saved(outside).reason) == (Phase.GIVEN_UP, "InsufficientCapacity")
    assert outside.store.unavailable == {POOL: Backoff(NOW + timedelta(minutes=3), 1, LACKING)}


def test_an_instance_that_cannot_start_is_given_up_and_its_pool_is_not_avoided() -> None:
    outside = ClusterPorts()
    settled = refuse(outside, StartRefusal("IncorrectInstanceState", "it is terminated"))
    assert settled.given_up == ["default-x1"]
    assert saved(outside).reason == "StartRefused"
    assert "i-1: IncorrectInstanceState: it is terminated" in saved(outside).message
    assert outside.store.unavailable == {}


def test_a_start_that_may_succeed_in_a_moment_is_repeated() -> None:
    outside = ClusterPorts()
    settled = refuse(outside, StartRefusal("RequestLimitExceeded", "later", passes=True))
    assert [each.reason for each in settled.deferred] == ["RequestLimitExceeded"]
    assert (settled.given_up, settled.launched) == ([], [])
    assert saved(outside).launch[ATTEMPTED_AT] == ""
    assert saved(outside).phase is Phase.STARTING


def test_an_instance_that_starts_leaves_its_claim_to_the_lifecycle() -> None:
    outside = ClusterPorts()
    claim = starting(outside)
    settled = start([claim], outside.store.load(), outside.store, outside.cloud, outside.clock)
    assert settled.launched == [claim.name]
    assert saved(outside) == claim


@pytest.mark.parametrize("passes", [True, False])
def test_a_start_does_not_fail_if_another_run_has_changed_the_claim(passes: bool) -> None:
    outside = ClusterPorts()

    def changed(method: str) -> None:
        if method == "save":
            raise Conflict(method)

    outside.store.raise_before = changed
    settled = refuse(outside, StartRefusal("x", "y", passes=passes))
    assert len(settled.deferred) == passes
    assert len(settled.given_up) == (not passes)


def resume(outside: ClusterPorts, *claims: NodeClaim, left: int = 16) -> Settled:
    """Resume the starts of claims that another run has left; `left` calls may be made."""
    outside.store.claims.update({claim.name: claim for claim in claims})
    allowance = Allowance(outside.store, outside.clock, left=left)
    return resume_starts(outside.store.load(), outside.store, outside.cloud, outside.clock, allowance)


def left_starting(name: str, ago: timedelta) -> NodeClaim:
    launch = {ATTEMPTED_AT: (NOW - ago).isoformat()}
    return builders.claim(name, phase=Phase.STARTING, instance_id=f"i-{name}", launch=launch)


def test_a_start_is_resumed_once_no_other_run_can_be_at_it() -> None:
    outside = ClusterPorts()
    settled = resume(outside, left_starting("a", LEASE), left_starting("b", LEASE - timedelta(seconds=1)))
    assert settled.launched == ["a"]
    assert [each.about for each in outside.cloud.calls] == [("i-a",)]
    assert outside.store.claims["a"].launch[ATTEMPTED_AT] == NOW.isoformat(), "leased again, before the call"
    assert not settled.is_cut


def test_starts_for_which_no_call_is_left_are_resumed_by_a_later_run() -> None:
    outside = ClusterPorts()
    outside.store.locks[Concern.PROVISIONING] = NOW + LEASE, False  # another run makes many calls
    settled = resume(outside, left_starting("a", LEASE), left_starting("b", LEASE), left=1)
    assert (settled.launched, settled.is_cut) == ([], True)


def test_only_starting_claims_are_started() -> None:
    outside = ClusterPorts()
    assert resume(outside, replace(left_starting("a", LEASE), phase=Phase.STOPPED)) == Settled()
    assert outside.cloud.calls == []


def test_the_first_lease_to_end_is_the_next_moment() -> None:
    second = timedelta(seconds=1)
    claims = [left_starting("a", LEASE), left_starting("b", 9 * second), left_starting("c", 5 * second)]
    assert leased_until(claims, NOW) == NOW + LEASE - 9 * second
    assert leased_until(claims[:1], NOW) is None
    assert leased_until([replace(claims[1], phase=Phase.STOPPED)], NOW) is None


def resume_launches(outside: ClusterPorts, *claims: NodeClaim) -> Settled:
    """Carry on with claims that another run has left pending."""
    outside.store.claims.update({claim.name: claim for claim in claims})
    allowance = Allowance(outside.store, outside.clock)
    ports = outside.store, outside.cloud, outside.clock, allowance
    return carry_on(outside.store.load(), {}, {}, lambda *_: None, *ports)


def left_pending(name: str = "default-x1", fleet: FleetShare | None = None, **fields: Any) -> NodeClaim:
    """Return a claim whose lease has run out; `fleet` is its share of a call for several claims."""
    shared = {"fleet": [fleet.fleet, fleet.index, fleet.size]} if fleet else {}
    launch = {**pending(name).launch, ATTEMPTED_AT: (NOW - LEASE).isoformat(), **shared}
    return replace(pending(name), launch=launch, **fields)


def methods(outside: ClusterPorts) -> list[str]:
    return [call.method for call in outside.cloud.calls]


def test_a_claim_that_another_run_may_be_launching_is_left_to_it() -> None:
    outside = ClusterPorts()
    assert resume_launches(outside, pending()) == Settled()
    assert outside.cloud.calls == []


def test_an_instance_that_an_earlier_run_launched_is_adopted_without_another_launch() -> None:
    outside = ClusterPorts()
    outside.cloud.instances["i-default-x1"] = instance()
    settled = resume_launches(outside, left_pending())
    assert settled.launched == ["default-x1"]
    assert saved(outside).instance_id == "i-default-x1"
    assert methods(outside) == ["instances_of"]


def test_an_instance_that_has_ended_is_not_adopted() -> None:
    outside = ClusterPorts()
    outside.cloud.instances["i-default-x1"] = replace(instance(), state="terminated")
    outside.cloud.answers["default-x1"] = Refused("default-x1", "LaunchFailed", "no")
    assert resume_launches(outside, left_pending()).given_up == ["default-x1"]
    assert methods(outside)[-1] == "launch"


@pytest.mark.parametrize("shown", [1, 2], ids=["a part of them", "all of them"])
def test_claims_of_one_call_get_its_instances_only_once_ec2_shows_all(shown: int) -> None:
    outside = ClusterPorts()
    outside.cloud.clock = outside.clock
    for number in range(shown):
        id_ = f"i-{number}"
        outside.cloud.instances[id_] = replace(instance(""), id=id_, fleet="fleet-1")
    names = ("default-x1", "default-x2")
    claims = [left_pending(name, FleetShare("fleet-1", index, 2)) for index, name in enumerate(names)]
    outside.cloud.answers.update({name: Deferred(name, "RequestTimeout", "later") for name in names})
    settled = resume_launches(outside, *claims)
    assert settled.launched == ([*names] if shown == 2 else [])
    assert [saved(outside, name).instance_id for name in names] == (
        ["i-0", "i-1"] if shown == 2 else ["", ""]
    )
    assert len(settled.deferred) == (0 if shown == 2 else 2)


@pytest.mark.parametrize(("seconds", "is_over"), [(299, False), (300, True)])
def test_a_claim_without_an_instance_is_given_up_after_five_minutes(seconds: int, is_over: bool) -> None:
    outside = ClusterPorts()
    outside.cloud.answers["default-x1"] = Deferred("default-x1", "RequestTimeout", "later")
    settled = resume_launches(outside, left_pending(created_at=NOW - timedelta(seconds=seconds)))
    assert settled.given_up == (["default-x1"] if is_over else [])
    assert len(settled.deferred) == (not is_over)
    assert saved(outside).reason == ("LaunchTimeout" if is_over else "")


class NotingCloud(FakeCloud):
    was_repeated = False

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        self.was_repeated = repeated
        return super().launch(requests, repeated=repeated)


def test_a_launch_is_repeated_with_the_same_request() -> None:
    cloud = NotingCloud()
    outside = ClusterPorts(cloud=cloud)
    outside.cloud.answers["default-x1"] = Launched("default-x1", instance())
    settled = resume_launches(outside, left_pending())
    assert settled.launched == ["default-x1"]
    assert methods(outside) == ["instances_of", "ensure_templates", "launch"]
    assert cloud.was_repeated
    assert not settled.is_cut


@dataclass
class Buying(ClusterPorts):
    """A run that buys."""

    metrics: Metrics = field(default_factory=Metrics)

    def stopped(self, *names: str) -> list[NodeClaim]:
        """Return claims that are to be started, as they are before that is committed."""
        for name in names:
            claim = builders.claim(name, phase=Phase.STARTING, instance_id=f"i-{name}")
            self.store.claims[name] = claim
        return [*self.store.claims.values()]


def test_starts_are_committed_with_their_time_before_ec2_is_called() -> None:
    run = Buying()
    committed: list[object] = []

    def note(_: object) -> None:
        committed.extend(claim.launch.get(ATTEMPTED_AT) for claim in run.store.claims.values())

    run.cloud.raise_before = note
    claims = run.stopped("a", "b")
    settled, made = start_many(run, claims, run.store.load(), "d-1", Allowance(run.store, run.clock))
    assert (settled.launched, made, settled.is_cut) == (["a", "b"], 2, False)
    assert committed == [NOW.isoformat()] * 2
    assert (run.store.version, run.store.decisions) == (1, ["d-1"])


def test_nothing_starts_if_another_run_has_committed_meanwhile() -> None:
    run = Buying()
    claims, before = run.stopped("a"), run.store.load()
    run.store.version += 1
    with pytest.raises(Conflict):
        start_many(run, claims, before, "d-1", Allowance(run.store, run.clock))
    assert run.cloud.calls == []


def test_starts_for_which_no_call_is_left_are_not_committed() -> None:
    run = Buying()
    run.store.locks[Concern.PROVISIONING] = NOW + LEASE, False
    claims = run.stopped("a", "b")
    allowance = Allowance(run.store, run.clock, left=1)
    settled, made = start_many(run, claims, run.store.load(), "d-1", allowance)
    assert (settled, made, run.store.decisions) == (Settled(is_cut=True), 0, [])
    assert start_many(run, [], run.store.load(), "d-2", allowance) == (Settled(), 0)


def test_refused_starts_that_may_be_saved_know_the_committed_revision() -> None:
    run = Buying()
    claims = run.stopped("a")
    run.cloud.stock["* * in *"] = 0
    run.cloud.instances["i-a"] = replace(instance("a"), id="i-a", state="stopped")
    settled, _ = start_many(run, claims, run.store.load(), "d-1", Allowance(run.store, run.clock))
    assert settled.given_up == ["a"]
    assert saved(run, "a").phase is Phase.GIVEN_UP


def planned(count: int) -> Sequence[PlannedNode]:
    """Return nodes that a decision buys for pods of which each needs its own."""
    pods = builders.pods(builders.shape(affinity=builders.anti_affinity()), count)
    return decide(builders.inputs(snapshot=builders.snapshot(pods=pods))).nodes


def test_nodes_beyond_one_commit_are_bought_with_the_next_commit_of_the_same_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodesmith.controllers.launching.launch.COMMIT_NODES", 1)
    run = Buying()
    allowance = Allowance(run.store, run.clock)
    settled, made = buy_many(run, planned(2), run.store.load(), lambda *_: None, "d-1", allowance)
    assert (made, len(settled.launched)) == (2, 2)
    assert (run.store.version, run.store.decisions) == (2, ["d-1", "d-1"])


@pytest.mark.parametrize(("sources", "again"), [(("younger", "old", "young"), 3), (("old",), 0)])
def test_a_replacement_continues_the_longest_row_of_nodes_replaced_soon_before_it(
    sources: tuple[str, ...], again: int
) -> None:
    run, (node,) = Buying(), planned(1)
    for number, (name, minutes) in enumerate({"younger": 5, "old": 120, "young": 10}.items()):
        at = NOW - timedelta(minutes=minutes)
        run.store.claims[name] = builders.claim(name, created_at=at, removals_before=number)
    name = node.claim.name
    move = Move("m1", MoveReason.UNDERUTILIZED, sources, Stage.REPLACING, NOW, NOW, (name,))
    buy(run, [node], run.store.load(), lambda *_: None, "d-1", move)
    assert (saved(run, name).removals_before, saved(run, name).annotations[CREATED_FOR]) == (
        again,
        "underutilized",
    )
