"""What nodes report is learned from the first node on, for its type and image, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.provisioning import decide
from nodesmith.model.apimachinery.quantities import MEMORY, Resources
from nodesmith.model.ec2.capacity import MIB
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.hashes import NODECLASS_HASH_VERSION, hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.learned import Boot, Offered, boot_of, known_types, learned
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from tests import builders

TYPE, IMAGE = "m5.large", "ami-amd64"
BOOT = Boot(TYPE, IMAGE)
NOMINAL = 8 * 1024 * MIB
GUESS = 7577 * MIB  # 7.5 % less
SHOWN = 7800 * MIB
STATUS = builders.nodeclass_status()
CA_BUNDLE = "Q0E="
CATALOG = builders.catalog()


def shows(memory: int = SHOWN, *, left: int = SHOWN - 700 * MIB, **fields: Any) -> NodeClaim:
    known: dict[str, Any] = {
        "instance_type": TYPE,
        "image_id": IMAGE,
        "nodeclass_hash": builders.nodeclass().hash_in(CA_BUNDLE),
        "nodeclass_hash_version": NODECLASS_HASH_VERSION,
    }
    return replace(
        builders.claim(),
        capacity=Resources({"cpu": 2000, MEMORY: memory, "pods": 29}),
        allocatable=Resources({"cpu": 1930, MEMORY: left, "ephemeral-storage": 17 * 10**9, "pods": 29}),
        **(known | fields),
    )


def resolved(known: Mapping[Boot, Offered], name: str = TYPE, status: object = STATUS) -> InstanceType:
    configuration = NodeConfiguration.of(builders.nodeclass())
    types = known_types(CATALOG, configuration, NodeSettings(), status, known)  # type: ignore[arg-type]
    return next(kind for kind in types if kind.name == name)


def taught(*claims: NodeClaim) -> Offered | None:
    known: Offered | None = None
    for claim in claims:
        known = learned(known, claim, GUESS, CA_BUNDLE) or known
    return known


def test_everything_is_learned_from_the_first_node() -> None:
    offered = taught(shows())
    assert offered is not None
    assert offered.memory_bytes == SHOWN
    left = {"cpu": 1930, MEMORY: SHOWN - 700 * MIB, "ephemeral-storage": 17 * 10**9}
    assert dict(offered.allocatable) == {STATUS.hash: Resources(left)}


def test_an_equal_observation_is_not_written() -> None:
    assert learned(taught(shows()), shows(), GUESS, CA_BUNDLE) is None


def test_the_smallest_of_several_values_is_kept() -> None:
    offered = taught(shows(SHOWN), shows(SHOWN - MIB, left=SHOWN), shows(SHOWN + MIB, left=SHOWN - 900 * MIB))
    assert offered is not None
    assert offered.memory_bytes == SHOWN - MIB
    assert offered.allocatable[STATUS.hash].memory_bytes == SHOWN - 900 * MIB


def test_allocatable_is_learned_for_the_last_sixteen_nodeclasses() -> None:
    nodeclasses = [(str(n), hash_in_cluster(str(n), CA_BUNDLE)) for n in range(20)]
    offered = taught(*(shows(nodeclass_hash=hash_, left=SHOWN - int(n)) for n, hash_ in nodeclasses))
    assert offered is not None
    assert list(offered.allocatable) == [n for n, _ in nodeclasses[4:]]


@pytest.mark.parametrize(
    ("hash_", "version"), [("0a1b2c3d4e5f6071", "v5"), ("123", "nodesmith-v1"), ("", "v5")]
)
def test_nothing_is_learned_from_a_node_with_a_hash_of_another_version(hash_: str, version: str) -> None:
    assert taught(shows(nodeclass_hash=hash_, nodeclass_hash_version=version)) is None


def test_clusters_of_an_account_learn_from_each_other() -> None:
    other = learned(None, shows(nodeclass_hash=builders.nodeclass().hash_in("QQ==")), GUESS, "QQ==")
    assert other == taught(shows())


@pytest.mark.parametrize("memory", [0, 1, int(0.79 * GUESS), int(1.11 * GUESS), 2**60, -1])
def test_nothing_is_learned_from_a_node_with_impossible_memory(memory: int) -> None:
    assert learned(None, shows(memory), GUESS, CA_BUNDLE) is None
    assert learned(Offered(SHOWN), shows(memory), GUESS, CA_BUNDLE) is None


@pytest.mark.parametrize("missing", ["instance_type", "image_id"])
def test_nothing_is_learned_from_a_node_of_unknown_type_or_image(missing: str) -> None:
    assert boot_of(shows()) == BOOT
    assert boot_of(replace(shows(), **{missing: ""})) is None  # type: ignore[arg-type]


def test_memory_is_an_estimate_until_a_node_has_reported_it() -> None:
    assert resolved({}).capacity.memory_bytes == GUESS
    assert resolved({Boot("m5.xlarge", IMAGE): Offered(2 * SHOWN)}).capacity.memory_bytes == GUESS


def test_afterwards_reported_memory_is_used_and_overhead_is_calculated_from_it() -> None:
    guessed, known = resolved({}), resolved({BOOT: Offered(SHOWN)})
    assert known.capacity.memory_bytes == SHOWN
    assert known.allocatable.memory_bytes == guessed.allocatable.memory_bytes + SHOWN - GUESS
    assert known.allocatable == known.capacity - known.overhead
    assert known.labels == guessed.labels


def test_reported_allocatable_is_used_for_the_same_nodeclass() -> None:
    left = Resources({"cpu": 1800, MEMORY: 6800 * MIB, "ephemeral-storage": 15 * 10**9})
    same, other = Offered(SHOWN, {STATUS.hash: left}), Offered(SHOWN, {"another": left})
    assert {name: resolved({BOOT: same}).allocatable.of(name) for name in left} == dict(left)
    assert resolved({BOOT: other}).allocatable == resolved({BOOT: Offered(SHOWN)}).allocatable
    assert resolved({BOOT: same}).allocatable.pods == resolved({}).allocatable.pods


def test_a_new_image_starts_with_the_estimate_again() -> None:
    images = tuple(replace(image, id=f"{image.id}-v2") for image in STATUS.images)
    assert (
        resolved({BOOT: Offered(SHOWN)}, status=replace(STATUS, images=images)).capacity.memory_bytes == GUESS
    )


def test_observations_of_another_architectures_image_are_not_used() -> None:
    assert resolved({Boot(TYPE, "ami-arm64"): Offered(SHOWN)}).capacity.memory_bytes == GUESS


@pytest.mark.parametrize("memory", [1, NOMINAL * 3 // 4 - 1, NOMINAL + 1, 2**60])
def test_memory_reported_by_another_cluster_is_not_accepted_beyond_the_types(memory: int) -> None:
    assert resolved({BOOT: Offered(memory)}) == resolved({})


@pytest.mark.parametrize("left", [{MEMORY: 1}, {"cpu": 0}, {MEMORY: SHOWN + 1}, {"cpu": 2001}])
def test_impossible_allocatable_from_another_cluster_is_not_accepted(
    left: dict[str, int],
) -> None:
    sound = resolved({BOOT: Offered(SHOWN)})
    known = {"cpu": 1930, MEMORY: sound.allocatable.memory_bytes, "ephemeral-storage": 17 * 10**9}
    offered = Offered(SHOWN, {STATUS.hash: Resources({**known, **left})})
    assert resolved({BOOT: offered}) == sound


def test_equal_observations_give_the_same_types() -> None:
    configuration = NodeConfiguration.of(builders.nodeclass())
    one, two = (
        known_types(CATALOG, configuration, NodeSettings(), STATUS, {BOOT: Offered(SHOWN)}) for _ in range(2)
    )
    assert one is two


def test_a_decision_uses_what_was_learned() -> None:
    """One pod that does not fit on the type by the estimate, but fits by what nodes have reported."""
    pool = builders.nodepool_manifest(
        requirements=[builders.expression("node.kubernetes.io/instance-type", "In", TYPE, "m5.xlarge")]
    )
    asked = resolved({}).allocatable.memory_bytes + 50 * MIB
    pods = builders.pods(builders.shape("100m", str(asked)), 1)

    def bought(known: Mapping[Boot, Offered]) -> str:
        seen = builders.snapshot(pods=pods, nodepools=(pool,))
        plan = decide(builders.inputs(snapshot=seen, ledger=builders.ledger(learned=known)))
        return plan.nodes[0].request.overrides[0].instance_type

    assert bought({}) == "m5.xlarge"
    assert bought({BOOT: Offered(SHOWN)}) == TYPE
