import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.karpenter.disruption import Budget
from nodesmith.model.karpenter.nodeclaimobjects import labels_of, manifest, parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase, Transition
from nodesmith.model.ledger.items import ClaimTexts, claim_from_item, claim_to_item

CREATED = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
SMALLEST = NodeClaim("a", "default", NodeClassRef("default"), CREATED, Phase.PENDING, CREATED)
FULLEST = NodeClaim(
    name="default-x7k2p",
    nodepool="default",
    nodeclass=NodeClassRef("blue"),
    created_at=CREATED,
    phase=Phase.TERMINATED,
    phase_since=CREATED + timedelta(seconds=50),
    use="Used",
    removals_before=2,
    nodepool_uid="0-1",
    provisioner="legacy",
    nodepool_hash="11",
    nodeclass_hash="22",
    nodepool_hash_version="v3",
    nodeclass_hash_version="v5",
    requirements=Requirements.of(
        requirement("kubernetes.io/arch", "In", ["amd64"]),
        requirement("node.kubernetes.io/instance-type", "In", ["m5.large", "c5.large"], 2),
        requirement("karpenter.k8s.aws/instance-cpu", "Gt", ["1"]),
        requirement("karpenter.k8s.aws/instance-cpu", "NotIn", ["8"]),
        requirement("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist"),
    ),
    labels={"example.com/team": "a"},
    annotations={"example.com/note": "b"},
    taints=(Taint("example.com/gpu", "NoSchedule", "true"),),
    startup_taints=(Taint("example.com/cni", "NoExecute"),),
    requests=Resources({"cpu": 1930, "memory": 2**30, "pods": 4}),
    expire_after="720h",
    termination_grace_period="1h",
    budgets=(Budget("5", ("Drifted",), "0 9 * * 1-5", 3600), Budget()),
    launch={"overrides": [["m5.large", 0.03]], "tags": {"a": "b"}},
    instance_id="i-1",
    provider_id="aws:///us-east-1a/i-1",
    instance_type="m5.large",
    zone="us-east-1a",
    capacity_type="spot",
    image_id="ami-1",
    subnet_id="subnet-1",
    replaced_by=("default-b",),
    security_groups=("sg-1", "sg-2"),
    price_hourly_usd=0.0331,
    private_dns_name="ip-10-0-0-1.ec2.internal",
    node_name="ip-10-0-0-1.ec2.internal",
    capacity=Resources({"cpu": 2000, "pods": 29}),
    allocatable=Resources({"cpu": 1930, "pods": 29}),
    nominated=("default/a", "default/b"),
    attempts={"a1b2c3d4-e5f6a7b8": 2},
    served=("a1b2c3d4-e5f6a7b8",),
    launched_at=CREATED + timedelta(seconds=3),
    registered_at=CREATED + timedelta(seconds=40),
    initialized_at=CREATED + timedelta(seconds=50),
    terminating_at=CREATED + timedelta(minutes=9),
    cause="Deleted",
    deadline=CREATED + timedelta(hours=1),
    drained_at=CREATED + timedelta(minutes=10),
    detached_at=CREATED + timedelta(minutes=11),
    terminated_at=CREATED + timedelta(minutes=12),
    instance_gone_at=CREATED + timedelta(minutes=13),
    history=(
        Transition(Phase.LAUNCHED, CREATED + timedelta(seconds=3)),
        Transition(Phase.TERMINATING, CREATED + timedelta(minutes=9), "Deleted: Node a was deleted"),
    ),
    reason="Because",
    message="of this",
    drift="AMIDrift",
    drift_detail="its image is ami-1, a new node's ami-2",
    drifted_at=CREATED + timedelta(minutes=8),
    decision="d-1",
    origin="ByHand",
    inconsistency="the Node shows 3 cpu of 4 that were expected",
    held_until=CREATED + timedelta(minutes=7),
    buffer="default/room",
    images=("web:1",),
    stopped_price_hourly_usd=0.002,
    stopped_at=CREATED + timedelta(seconds=20),
    started_at=CREATED + timedelta(seconds=30),
    revision=6,
)


BOUGHT = replace(FULLEST, origin="")
READY = replace(FULLEST, terminating_at=None, inconsistency="", drifted_at=None)


def conditions(claim: NodeClaim) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and time of each condition by its type."""
    found = manifest(claim)["status"]["conditions"]
    return {c["type"]: (c["status"], c["reason"], c.get("lastTransitionTime", "")[11:]) for c in found}


def messages_of(claim: NodeClaim) -> dict[str, str]:
    """Return the message of each condition by its type."""
    return {c["type"]: c["message"] for c in manifest(claim)["status"]["conditions"]}


@pytest.mark.parametrize("claim", [SMALLEST, FULLEST], ids=["smallest", "fullest"])
def test_a_claim_is_read_from_the_ledger_as_it_was_written(claim: NodeClaim) -> None:
    assert claim_from_item(json.loads(json.dumps(claim_to_item(claim)))) == claim


def test_every_field_of_a_claim_is_tested() -> None:
    """A field that has its default in the fullest claim would pass the test without being stored."""
    assert {f.name for f in fields(NodeClaim) if getattr(FULLEST, f.name) == getattr(SMALLEST, f.name)} == {
        "nodepool",
        "created_at",
    }


def test_equal_claims_are_stored_as_equal_items() -> None:
    shuffled = replace(
        FULLEST, requirements=Requirements(dict(reversed(list(FULLEST.requirements.by_key.items()))))
    )
    assert json.dumps(claim_to_item(shuffled)) == json.dumps(claim_to_item(FULLEST))


def test_an_older_version_reads_what_a_newer_one_wrote() -> None:
    assert claim_from_item({**claim_to_item(SMALLEST), "mood": "sunny"}) == SMALLEST


def test_a_claim_of_a_release_with_one_hash_version_is_read_and_such_a_release_finds_its_key() -> None:
    old = {"hash_version": "nodesmith-v1", "nodepool_hash": "0a", "nodeclass_hash": "0b"}
    claim = claim_from_item({**claim_to_item(SMALLEST), **old})
    assert (claim.nodepool_hash_version, claim.nodeclass_hash_version) == ("nodesmith-v1", "nodesmith-v1")
    assert (claim.comparable_nodepool_hash, claim.comparable_nodeclass_hash) == ("", "")
    assert claim_to_item(FULLEST)["hash_version"] == "v3", (
        "without it, that release takes the hash for one of its own"
    )


def test_a_users_claim_is_marked_once_it_is_in_the_ledger() -> None:
    by_hand = replace(SMALLEST, origin="ByHand")
    assert manifest(by_hand)["metadata"]["annotations"] == {"nodesmith.dev/origin": "ByHand"}
    assert manifest(SMALLEST)["metadata"]["annotations"] == {}


def test_the_object_carries_labels_annotations_and_its_owner() -> None:
    metadata = manifest(BOUGHT)["metadata"]
    assert metadata == {
        "name": "default-x7k2p",
        "generateName": "default-",
        "labels": {
            "example.com/team": "a",
            "karpenter.k8s.aws/ec2nodeclass": "blue",
            "karpenter.sh/capacity-type": "spot",
            "karpenter.sh/nodepool": "default",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-east-1a",
        },
        "annotations": {
            "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true",
            "example.com/note": "b",
            "karpenter.k8s.aws/ec2nodeclass-hash": "22",
            "karpenter.k8s.aws/ec2nodeclass-hash-version": "v5",
            "karpenter.k8s.aws/tagged": "true",
            "karpenter.sh/nodeclaim-termination-timestamp": "2026-11-21T13:00:00Z",
            "karpenter.sh/nodepool-hash": "11",
            "karpenter.sh/nodepool-hash-version": "v3",
            "nodesmith.dev/decision": BOUGHT.decision,
        },
        "finalizers": ["karpenter.sh/termination"],
        "ownerReferences": [
            {
                "apiVersion": "karpenter.sh/v1alpha5",
                "kind": "Provisioner",
                "name": "legacy",
                "uid": "0-1",
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_the_name_of_a_users_object_was_not_generated_by_us() -> None:
    assert "generateName" not in manifest(FULLEST)["metadata"]


@pytest.mark.parametrize(
    "untagged",
    [
        replace(BOUGHT, launch={"tagsDue": {"Name": "a"}}),
        replace(BOUGHT, registered_at=None),
    ],
    ids=["tags are still to be written", "it has no Node yet"],
)
def test_the_tagged_annotation_follows_tagging_and_registration(untagged: NodeClaim) -> None:
    assert "karpenter.k8s.aws/tagged" not in manifest(untagged)["metadata"]["annotations"]


def test_a_claim_without_a_nodepool_has_no_owner() -> None:
    assert "ownerReferences" not in manifest(replace(SMALLEST, nodepool=""))["metadata"]
    assert labels_of(replace(SMALLEST, nodepool="")) == {"karpenter.k8s.aws/ec2nodeclass": "default"}


def test_the_template_s_labels_win_over_requirements_and_the_instance_s_over_both() -> None:
    zone = "topology.kubernetes.io/zone"
    claim = replace(
        SMALLEST,
        requirements=Requirements.of(
            requirement(zone, "In", ["a"]), requirement("example.com/t", "In", ["x"])
        ),
        labels={"example.com/t": "y"},
        zone="b",
    )
    assert labels_of(claim)["example.com/t"] == "y"
    assert labels_of(claim)[zone] == "b"


def test_restricted_labels_are_not_copied_from_requirements() -> None:
    claim = replace(
        SMALLEST, requirements=Requirements.of(requirement("kubernetes.io/hostname", "In", ["a"]))
    )
    assert "kubernetes.io/hostname" not in labels_of(claim)


def test_the_spec_contains_what_was_requested() -> None:
    assert manifest(FULLEST)["spec"] == {
        "requirements": [
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["2"]},
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "NotIn", "values": ["8"]},
            {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {
                "key": "node.kubernetes.io/instance-type",
                "operator": "In",
                "values": ["c5.large", "m5.large"],
                "minValues": 2,
            },
        ],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "blue"},
        "taints": [{"key": "example.com/gpu", "effect": "NoSchedule", "value": "true"}],
        "startupTaints": [{"key": "example.com/cni", "effect": "NoExecute"}],
        "resources": {"requests": {"cpu": "1930m", "memory": "1Gi", "pods": "4"}},
        "expireAfter": "720h",
        "terminationGracePeriod": "1h",
    }


def test_an_in_has_no_more_min_values_than_values() -> None:
    spot = requirement("karpenter.sh/capacity-type", "In", ["spot", "on-demand"], 2)
    narrowed = Requirements.of(spot, requirement("karpenter.sh/capacity-type", "In", ["spot"]))
    open_ = requirement("karpenter.k8s.aws/instance-family", "Exists", (), 5)
    claim = replace(SMALLEST, requirements=narrowed.adding(open_))
    assert manifest(claim)["spec"]["requirements"] == [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 5},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"], "minValues": 1},
    ]


def test_the_status_has_no_attachable_volumes_since_nodes_do_not_show_them() -> None:
    offered = Resources({"cpu": 2000, "attachable-volumes-csi-ebs.csi.aws.com": 25})
    status = manifest(replace(SMALLEST, capacity=offered, allocatable=offered))["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "2"}


def test_the_status_shows_the_launched_instance() -> None:
    status = manifest(FULLEST)["status"]
    del status["conditions"]
    assert status == {
        "nodeName": "ip-10-0-0-1.ec2.internal",
        "providerID": "aws:///us-east-1a/i-1",
        "imageID": "ami-1",
        "capacity": {"cpu": "2", "pods": "29"},
        "allocatable": {"cpu": "1930m", "pods": "29"},
    }


def test_the_conditions_show_each_step_of_an_end() -> None:
    begun = replace(FULLEST, phase=Phase.TERMINATING, drained_at=None, detached_at=None, terminated_at=None)
    reported = conditions(replace(begun, reason="DoNotDisrupt"))
    assert reported["Drained"] == ("Unknown", "DoNotDisrupt", "12:09:00Z")
    assert reported["VolumesDetached"] == ("Unknown", "AwaitingReconciliation", "12:09:00Z")
    assert conditions(replace(begun, reason="Deleted"))["Drained"][:2] == ("Unknown", "Draining")
    assert conditions(FULLEST)["InstanceTerminating"] == ("True", "InstanceTerminating", "12:12:00Z")


def test_an_end_leaves_the_steps_that_were_not_reached_as_they_were() -> None:
    waiting = replace(
        READY, phase=Phase.REGISTERED, reason="NodeNotReady", initialized_at=None, drained_at=None
    )
    assert conditions(waiting)["Initialized"][:2] == ("Unknown", "NodeNotReady")
    reported = conditions(replace(waiting.terminating("Deleted", "", CREATED), reason="PodDisruptionBudget"))
    assert reported["Drained"][:2] == ("Unknown", "PodDisruptionBudget")
    assert reported["Registered"][0] == "True"
    assert {"Initialized", "Ready"}.isdisjoint(reported), "they are merged into those of the object"


def test_no_step_leads_back() -> None:
    with pytest.raises(ValueError, match="no step leads from Terminated to Initialized"):
        FULLEST.advanced(Phase.INITIALIZED, CREATED)


def test_an_initialized_claim_is_ready() -> None:
    assert conditions(READY) == {
        "Launched": ("True", "Launched", "12:00:03Z"),
        "Registered": ("True", "Registered", "12:00:40Z"),
        "Initialized": ("True", "Initialized", "12:00:50Z"),
        "Ready": ("True", "Ready", "12:00:50Z"),
        "ConsistentStateFound": ("True", "ConsistentStateFound", "12:00:50Z"),
    }


def test_a_node_that_falls_short_is_inconsistent_from_now_on() -> None:
    found = manifest(replace(READY, inconsistency="it lacks memory"))["status"]["conditions"]
    (reported,) = (c for c in found if c["type"] == "ConsistentStateFound")
    assert (reported["status"], reported["reason"]) == ("False", "ConsistencyCheckFailed")
    assert "lastTransitionTime" not in reported, "when it is written says the clock"


def test_an_end_that_a_user_requested_is_no_disruption() -> None:
    assert "DisruptionReason" not in conditions(FULLEST)
    assert conditions(replace(FULLEST, cause="Drifted"))["DisruptionReason"][:2] == ("True", "Drifted")


def test_a_claim_in_progress_shows_what_it_waits_for() -> None:
    claim = replace(
        SMALLEST,
        phase=Phase.LAUNCHED,
        launched_at=CREATED + timedelta(seconds=2),
        reason="NodeNotFound",
        message="no node has this instance yet",
    )
    assert conditions(claim) == {
        "Launched": ("True", "Launched", "12:00:02Z"),
        "Registered": ("Unknown", "NodeNotFound", "12:00:00Z"),
        "Initialized": ("Unknown", "NodeNotFound", "12:00:00Z"),
        "Ready": ("Unknown", "ReconcilingDependents", "12:00:00Z"),
    }
    assert messages_of(claim)["Ready"] == "Registered=Unknown, Initialized=Unknown"
    registered = manifest(claim)["status"]["conditions"][1]
    assert registered["message"] == "no node has this instance yet"


@pytest.mark.parametrize(
    ("phase", "reason", "ready"),
    [(Phase.GIVEN_UP, "LaunchFailed", "False"), (Phase.PENDING, "LaunchFailed", "Unknown")],
)
def test_only_a_claim_that_was_given_up_is_not_ready_for_good(phase: Phase, reason: str, ready: str) -> None:
    claim = replace(SMALLEST, phase=phase, phase_since=CREATED + timedelta(minutes=5), reason=reason)
    assert conditions(claim)["Launched"][:2] == (ready, reason)
    assert conditions(claim)["Ready"][0] == ready


def test_a_claim_without_a_known_state_awaits_reconciliation() -> None:
    assert messages_of(SMALLEST) == {
        **dict.fromkeys(("Launched", "Registered", "Initialized"), "object is awaiting reconciliation"),
        "Ready": "Launched=Unknown, Registered=Unknown, Initialized=Unknown",
    }


def test_two_nodes_for_one_claim_make_the_condition_false() -> None:
    claim = replace(SMALLEST, phase=Phase.LAUNCHED, launched_at=CREATED, reason="MultipleNodesFound")
    assert conditions(claim)["Registered"][:2] == ("False", "MultipleNodesFound")
    assert conditions(claim)["Ready"][:2] == ("False", "UnhealthyDependents")


def test_times_are_written_in_utc() -> None:
    elsewhere = datetime.fromisoformat("2026-11-21T14:00:00+02:00")
    claim = replace(SMALLEST, phase=Phase.LAUNCHED, launched_at=elsewhere)
    assert conditions(claim)["Launched"][2] == "12:00:00Z"


def written(**changes: Any) -> dict[str, Any]:
    """Return a NodeClaim object of a user, with changes of its spec."""
    made = manifest(FULLEST)
    made["spec"] |= changes
    return made


def test_a_users_claim_is_read_as_pending() -> None:
    made = written()
    made["metadata"]["creationTimestamp"] = "2026-11-21T11:00:00Z"
    found = parse_nodeclaim(made, CREATED)
    assert found.problems == ()
    assert found.value is not None
    assert found.value.phase is Phase.PENDING
    assert found.value.created_at == datetime(2026, 11, 21, 11, tzinfo=UTC)
    assert found.value.nodepool == "default"
    assert found.value.instance_id == ""
    for field in ("requirements", "nodeclass", "taints", "startup_taints", "requests", "expire_after"):
        assert getattr(found.value, field) == getattr(FULLEST, field)


def test_a_claim_may_name_its_pool_in_its_requirements() -> None:
    pool = {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}
    assert parse_nodeclaim(written(requirements=[pool]), CREATED).problems == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"requirements": [{"key": "karpenter.sh/x", "operator": "Exists"}]},
            "spec.requirements[0].key is 'karpenter.sh/x': the domain karpenter.sh is reserved",
        ),
        ({"nodeClassRef": None}, "spec.nodeClassRef is missing: it is required"),
        (
            {"resources": {"requests": {"cpu": "-1"}}},
            "spec.resources.requests.cpu is '-1': must not be negative",
        ),
    ],
)
def test_invalid_input_is_reported_with_object_field_value_and_remedy(
    changes: dict[str, Any], message: str
) -> None:
    found = parse_nodeclaim(written(**changes), CREATED)
    assert found.value is None
    assert [str(p) for p in found.fatal] == [f"NodeClaim/default-x7k2p: {message}"]


def test_an_invalid_creation_time_is_reported() -> None:
    made = written()
    made["metadata"]["creationTimestamp"] = "2026-02-30T00:00:00Z"
    assert [p.field for p in parse_nodeclaim(made, CREATED).fatal] == ["metadata.creationTimestamp"]


@pytest.mark.parametrize(
    ("provisioner", "owner"),
    [
        ("", ("karpenter.sh/v1", "NodePool", "default")),
        ("old", ("karpenter.sh/v1alpha5", "Provisioner", "old")),
    ],
)
def test_a_nodeclaim_is_owned_by_its_nodepool_or_provisioner(
    provisioner: str, owner: tuple[str, ...]
) -> None:
    """Kubernetes' garbage collector deletes the NodeClaims of a deleted owner."""
    written = manifest(replace(SMALLEST, nodepool_uid="p-1", provisioner=provisioner))
    (found,) = written["metadata"]["ownerReferences"]
    assert (found["apiVersion"], found["kind"], found["name"]) == owner
    assert found["uid"] == "p-1"


def test_claims_that_stay_keep_their_text_and_a_changed_one_gets_a_new_one() -> None:
    texts, stays, changes = ClaimTexts(), SMALLEST, replace(FULLEST, name="changes")
    first = texts.of([stays, changes])
    later = replace(changes, zone="us-east-1c")

    assert [json.loads(text) for text in first] == [
        json.loads(json.dumps(claim_to_item(c))) for c in (stays, changes)
    ]
    assert texts.of([]) == []
    second = texts.of([stays, later])
    assert second[0] is first[0]
    assert json.loads(second[1])["zone"] == "us-east-1c"
    assert texts.of([later, stays]) == second[::-1]


def test_a_claim_whose_pods_lost_no_node_before_stores_no_number_of_removals() -> None:
    assert "removals_before" not in claim_to_item(SMALLEST)
    assert claim_to_item(replace(SMALLEST, removals_before=1))["removals_before"] == 1
