"""With crashes, hangs and lost messages, nothing leaks, nothing is duplicated, and no pod is forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.decisions.allocations.nodes import ended_at
from nodesmith.model.functions import Concern
from nodesmith.model.hashes import hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.samples import sampled
from tests.scenarios import crashes, crashpairs
from tests.scenarios.crashes import STORIES, Story
from tests.smallworld import passages
from tests.smallworld.branches import branches, copied
from tests.smallworld.world import BOOT, Boundaries, Messages, World

ONE, THREE, FRESH, FORGETFUL = STORIES[:4]
OTHERS = pytest.mark.parametrize("story", STORIES[4:], ids=lambda story: story.name)

PAIRED = sampled(crashes.ENDS[:1], whole=crashes.ENDS)
"""Stories with pairs of crashes: in a sample, a NodeClaim deleted before it joins, which takes the fewest steps."""


def story(name: str) -> Story:
    return next(s for s in STORIES if s.name == name)


DIES = story("an instance that dies before it joins")


def broken(found: object) -> dict[object, list[str]]:
    """Return the runs in which an invariant was violated."""
    return {where: faults for where, faults in found if faults}  # type: ignore[attr-defined]


def test_one_node_starts_without_disturbance() -> None:
    """`crashes` runs the other stories without disturbance, too."""
    assert crashes.violations(ONE.lived(), most=1000, disturbed=0) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", [THREE, FRESH, FORGETFUL], ids=lambda story: story.name)
def test_a_crash_before_or_after_any_call_does_not_change_the_outcome(story: Story) -> None:
    assert broken(crashes.crashes(story, sampled(4, whole=0))) == {}


def test_replaying_a_life_from_its_branch_point_equals_replaying_it_from_the_start() -> None:
    begun, moments = THREE.begun(), (3, 40, 41, 120)
    begun.observe()
    steps = crashes.undisturbed(THREE).before_steps
    for moment, parted in zip(moments, branches(begun, moments, steps), strict=True):
        parted.boundaries.fatal = frozenset({moment})
        parted.settle()
        whole = THREE.lived(Boundaries(frozenset({moment})))
        assert (parted.now, parted.runs, parted.held()) == (whole.now, whole.runs, whole.held())


@pytest.mark.exhaustive
@OTHERS
def test_a_crash_during_other_faults_does_not_change_the_outcome(story: Story) -> None:
    assert broken(crashes.crashes(story, crashes.SAMPLE)) == {}


def test_three_equal_nodes_are_requested_in_one_call_and_have_their_claims_tags() -> None:
    world = THREE.lived()
    assert len({instance.fleet for instance in world.cloud.instances.values()} - {""}) == 1
    tags = {each.id: world.cloud.tags[each.id] for each in world.cloud.instances.values()}
    owners = {claim.instance_id: name for name, claim in world.store.claims.items()}
    assert {id_: own["karpenter.sh/nodeclaim"] for id_, own in tags.items()} == owners
    assert {id_: own["Name"] for id_, own in tags.items()} == owners


@pytest.mark.exhaustive
@pytest.mark.parametrize("visitor", [Concern.PROVISIONING, Concern.GARBAGECOLLECTION])
def test_a_complete_run_during_the_launch_of_a_shared_fleet_duplicates_nothing(visitor: Concern) -> None:
    assert broken(crashes.visits(THREE, visitor, sampled(3, whole=0))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", crashes.SHARED, ids=lambda story: story.name)
def test_two_runs_that_distribute_a_fleet_assign_no_instance_twice(story: Story) -> None:
    assert broken(crashes.pauses(story, sampled(2, whole=64))) == {}


def _three_more(world: World) -> None:
    def come(later: World) -> None:
        for number in range(3):
            later.add(f"later-{number}", cpu="3")

    world.mishaps.append((timedelta(seconds=20), come))


def test_a_function_that_stands_still_after_it_has_read_the_snapshot_buys_no_node_twice() -> None:
    """Nodes that were bought before may be ready for long by then: in the ledger, but not in that snapshot."""
    only_four_cpus = builders.nodepool_manifest(
        requirements=[*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
    )
    late = Story("pods that come later", {"first": {"cpu": "3"}}, _three_more, nodepool=only_four_cpus)
    found = dict(crashes.pauses(late, after="FakeBlobs.get"))
    assert len(found) > 10
    assert broken(found.items()) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("visitor", [Concern.PROVISIONING, Concern.LIFECYCLE])
def test_a_complete_run_during_any_call_of_another_duplicates_nothing(visitor: Concern) -> None:
    assert broken(crashes.visits(ONE, visitor, sampled(3, whole=0))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", [ONE, FORGETFUL, DIES], ids=lambda story: story.name)
def test_a_function_that_hangs_at_any_call_until_its_timeout_duplicates_nothing(story: Story) -> None:
    assert broken(crashes.pauses(story, sampled(3, whole=64))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("visitor", [Concern.PROVISIONING, Concern.LIFECYCLE])
def test_a_complete_run_during_any_call_about_a_stopped_instance_duplicates_nothing(visitor: Concern) -> None:
    """A pod gets the instance or a new node, never both, whichever of two runs is first."""
    assert broken(crashes.visits(crashes.WARM_STORIES[0], visitor, sampled(2, whole=0))) == {}


@pytest.mark.exhaustive
def test_a_function_that_hangs_while_instances_are_stopped_or_started_duplicates_nothing() -> None:
    assert broken(crashes.pauses(crashes.WARM_STORIES[0], sampled(2, whole=64))) == {}


def test_the_timeout_of_a_function_is_shorter_than_the_lease_of_a_claim() -> None:
    from nodesmith.controllers.launching.pendingclaims import LEASE
    from nodesmith_local.functions.deployment import CONCERNS

    longest = next(c.timeout_seconds for c in CONCERNS if c.name == "provisioning")
    assert crashes.SLOWEST_RUN < timedelta(seconds=longest) < LEASE


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(sampled(2, whole=12)))
def test_lost_duplicated_and_late_messages_change_only_the_timing(seed: int) -> None:
    world = THREE.lived(messages=Messages(lost=0.3, doubled=0.4, delayed=0.4, seed=seed))
    assert crashes.violations(world, 3) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(sampled(2, whole=6)))
def test_reordered_messages_with_crashes_change_only_the_timing(seed: int) -> None:
    fatal = frozenset(range(7 + seed, 180, 23))
    world = THREE.lived(Boundaries(fatal, look=None), Messages(lost=0.2, doubled=0.3, delayed=0.3, seed=seed))
    assert crashes.violations(world, 3) == []


def test_with_every_message_lost_the_ticks_alone_serve_the_pods() -> None:
    world = ONE.lived(messages=Messages(lost=1.0))
    assert world.violations() == []
    assert world.now - builders.NOW <= timedelta(minutes=4)


def test_without_disturbance_a_pod_waits_a_few_seconds_longer_than_the_boot() -> None:
    world = ONE.lived()
    assert world.now - builders.NOW <= BOOT + timedelta(seconds=25)


def test_without_spot_capacity_on_demand_is_used_and_the_pools_back_off() -> None:
    world = story("spot without capacity").lived()
    assert {c.capacity_type for c in world.store.claims.values()} == {"on-demand"}
    assert {key.capacity_type for key in world.store.unavailable} == {"spot"}


def test_a_zone_without_capacity_is_avoided() -> None:
    world = story("a zone without capacity").lived()
    assert {c.zone for c in world.store.claims.values()}.isdisjoint({"us-east-1a"})


def test_without_any_capacity_pods_are_reported_and_served_once_it_returns() -> None:
    world = story("nothing to be had for four minutes").begun()
    world.settle(patience=timedelta(minutes=2))
    assert world.waiting() == ["web-0", "web-1"]
    assert world.cloud.alive() == []
    assert all(c.phase is not Phase.PENDING for c in world.store.claims.values())
    world.settle()
    assert world.violations() == []


def test_a_response_without_instance_or_error_is_no_capacity_and_other_pools_are_tried() -> None:
    world = story("an empty answer").lived()
    assert {b.reason for b in world.store.unavailable.values()} == {"UnfulfillableCapacity"}


def test_an_exceeded_quota_is_recorded_with_its_own_reason() -> None:
    world = story("over quota").lived()
    assert {b.reason for b in world.store.unavailable.values()} == {"MaxSpotInstanceCountExceeded"}


def test_a_refused_launch_backs_off_the_nodepool_for_three_minutes_and_reports_the_reason() -> None:
    world = story("refused once").begun()
    world.settle(patience=timedelta(minutes=1))
    backoff = world.store.nodepool_backoffs["default"]
    assert backoff.until == builders.NOW + timedelta(minutes=3)
    assert backoff.reason == "Unauthorized: UnauthorizedOperation: You are not authorized."
    assert world.waiting()
    world.settle()
    assert world.violations() == []
    assert world.store.nodepool_backoffs == {}


def test_a_throttled_launch_is_repeated_for_the_same_claim() -> None:
    world = story("throttled twice").lived()
    asked = {call.about for call in world.cloud.calls if call.method == "launch"}
    assert len(asked) == 1
    assert sum(call.method == "launch" for call in world.cloud.calls) == 3


def test_pods_whose_launch_is_throttled_inside_the_response_wait_seconds_without_a_pool_back_off() -> None:
    world = story("throttled inside two answers").lived()
    assert world.violations() == []
    assert world.now - builders.NOW <= BOOT + timedelta(seconds=40)
    assert len({call.about for call in world.cloud.calls if call.method == "launch"}) == 3
    assert not world.store.unavailable
    assert not world.store.nodepool_backoffs


def test_a_launch_template_missing_inside_a_response_is_created_and_another_claim_launched_at_once() -> None:
    world = story("a launch template missing inside the answer").lived()
    assert world.violations() == []
    assert world.now - builders.NOW <= BOOT + timedelta(seconds=25)


def test_an_instance_that_dies_before_it_joins_is_replaced() -> None:
    world = story("an instance that dies before it joins").lived()
    assert sorted(i.state for i in world.cloud.instances.values()) == ["pending", "terminated"]


def test_an_instance_that_never_joins_is_terminated_after_fifteen_minutes_and_replaced() -> None:
    world = story("an instance that never joins").begun()
    world.settle(patience=timedelta(minutes=14, seconds=50))
    assert [i.state for i in world.cloud.instances.values()] == ["pending"]
    world.settle(patience=timedelta(minutes=5))
    assert sorted(i.state for i in world.cloud.instances.values()) == ["pending", "terminated"]
    assert world.violations() == []


def test_an_ec2nodeclass_that_changes_between_intent_and_launch_loses_no_pod() -> None:
    undisturbed = story("an EC2NodeClass that changes meanwhile").lived(Boundaries())
    moments = [where for where, _ in undisturbed.boundaries.moments]
    killed = moments.index("before FakeCloud.ensure_templates") + 1
    world = story("an EC2NodeClass that changes meanwhile").lived(Boundaries(frozenset({killed})))
    assert world.violations() == []
    hashes = {c.nodeclass_hash for c in world.store.claims.values()}
    cluster, resolved = world.store.cluster, world.store.nodeclasses["default"].hash
    assert cluster is not None
    assert hashes == {hash_in_cluster(resolved, cluster.ca_bundle)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", PAIRED, ids=lambda story: story.name)
def test_two_crashes_during_the_termination_of_a_node_do_not_change_the_outcome(story: Story) -> None:
    """At every pair of moments for one first crash per story. `make bench` covers every first crash."""
    pairs = crashpairs.pairs_of(story, sample=1)
    assert pairs.reported
    assert pairs.broken == {}


def test_a_pair_of_crashes_that_violates_an_invariant_is_found() -> None:
    assert crashpairs.Pairs(crashes.ENDS[0], most=0, sample=1).enumerate().broken


def test_a_copied_world_evolves_equally_and_independently() -> None:
    world = crashes.ENDS[1].begun(Boundaries())
    for _ in range(8):
        passages.step(world)
    there, before = copied(world), passages.digest(world)
    assert passages.digest(there) == before
    for _ in range(10):
        passages.step(there)
    assert passages.digest(world) == before
    for _ in range(10):
        passages.step(world)
    assert passages.digest(world) == passages.digest(there) != before


def test_worlds_with_the_same_pods_are_equal_in_any_pod_order() -> None:
    one, other = (crashes.ENDS[0].begun(Boundaries()) for _ in range(2))
    one.wanted, other.wanted = ({"a/1", "a/9"}, {"a/9", "a/1"})
    one.wanted.update(f"b/{n}" for n in range(100))
    other.wanted.update(f"b/{n}" for n in reversed(range(100)))
    assert list(one.wanted) != list(other.wanted)
    assert passages.digest(one) == passages.digest(other)


def test_crashes_with_no_change_between_them_are_equivalent() -> None:
    reading, writing = "FakeStore.load", "FakeStore.save"
    crossed = [(f"{when} {call}", 1) for call in (reading, writing) for when in ("before", "after")]
    crossed += [(f"before {reading}", 2)]
    assert [(each.moment, each.alike) for each in passages.deaths(crossed)] == [(1, 3), (4, 1), (5, 1)]


def test_the_report_counts_crashes_and_violations() -> None:
    stories = STORIES[:2]
    report = crashes.crash_report(sample=2, stories=stories)
    assert report.points > 2 * len(stories)
    assert report.violations == 0


def test_an_instance_that_is_terminated_more_often_than_functions_crash_is_reported() -> None:
    world = story("a Node deleted in its prime").lived()
    (gone,) = (each.id for each in world.cloud.instances.values() if not each.is_alive)
    assert crashes.violations(world, 2, disturbed=0) == []
    world.cloud.terminate([gone])
    assert crashes.violations(world, 2, disturbed=0) == [f"{gone} was terminated 2 times"]
    assert crashes.violations(world, 2, disturbed=1) == []


def test_a_function_that_dies_after_it_has_terminated_an_instance_books_the_node_until_ec2s_time() -> None:
    deleted = story("a Node deleted in its prime")
    calls = [call for call, _ in deleted.lived(Boundaries()).boundaries.moments]
    death = calls.index("after FakeCloud.terminate") + 1
    world = deleted.lived(Boundaries(frozenset({death})))
    (gone,) = (each for each in world.cloud.instances.values() if not each.is_alive)
    assert [call.method for call in world.cloud.calls].count("terminate") == 2
    assert [ended_at(claim) for claim in world.store.unbooked.all()[0]] == [gone.state_since]


def test_leaks_of_a_world_are_detected() -> None:
    world: World = ONE.lived()
    world.store.claims.clear()
    assert [v.split()[0] for v in world.violations()] == ["leaked", "NodeClaim"]
