"""Ten thousand foreign events in a minute, and one of our own."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
from nodesmith.controllers.provisioning import provision
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.smallworld.world import World, pod_manifest

EVENTS, BATCH = 10_000, 100


def stranger(number: int) -> str:
    return f"i-{number:017x}"


def of_another_account(number: int) -> str:
    return json.dumps({**json.loads(builders.spot_warning(stranger(number))), "account": "999999999999"})


HOSTILE: dict[str, Callable[[int], str]] = {
    "of instances that are not ours": lambda n: builders.spot_warning(stranger(n)),
    "of other accounts": of_another_account,
    "without an instance": lambda n: builders.ec2_event("EC2 Spot Instance Interruption Warning", {"n": n}),
    "of an unknown kind": lambda n: builders.ec2_event("EC2 Instance Mood", {"instance-id": stranger(n)}),
    "that are no events": lambda n: f'{{"detail-type": {n}',
    "that are no hints": lambda n: f"[{n}]",
    "of other clusters": lambda n: json.dumps({"cluster": "another", "reason": str(n)}),
    "of states that say nothing": lambda n: builders.state_change(stranger(n), "running"),
}


def test_ten_thousand_foreign_events_are_dropped_and_do_not_delay_ours() -> None:
    world = World({"web-0": pod_manifest("web-0", "3")})
    world.settle()
    (claim,) = world.store.claims.values()
    buying = world.provisioning()
    run = Interruption(
        builders.CLUSTER,
        *(world.store, world.cloud, world.blobs, world.hints, world.notices),
        *(lambda: provision(buying), world.clock),
    )
    dice = random.Random(8)  # noqa: S311
    kinds = [dice.choice(sorted(HOSTILE)) for _ in range(EVENTS)]
    events = [HOSTILE[kind](n) for n, kind in enumerate(kinds)]
    ours = dice.randrange(EVENTS)
    events[ours] = builders.spot_warning(claim.instance_id, world.now)
    kinds[ours] = "ours"
    reported = Counter(kinds)
    rejected, counts, launched_in = 0, Counter[str](), -1
    for start in range(0, EVENTS, BATCH):
        world.notices.keep_all(*events[start : start + BATCH])
        report = handle_notices(run)
        assert (report.retries_soon, world.notices.pending()) == (False, [])
        rejected += len(report.rejected)
        counts += report.counts
        if report.counts["NodeClaimsLaunched"]:
            launched_in = start // BATCH
    assert launched_in == ours // BATCH
    assert world.store.claims[claim.name].phase is Phase.TERMINATING
    assert counts["NodeClaimsLaunched"] == 1
    assert counts["NoticesOfOthers"] == reported["of instances that are not ours"]
    silent = reported["of instances that are not ours"] + reported["of states that say nothing"] + 1
    assert rejected == EVENTS - silent
