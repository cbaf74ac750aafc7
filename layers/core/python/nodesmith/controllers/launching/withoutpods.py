"""Nodes that are bought although no pod waits for them: users' NodeClaims and static NodePools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from nodesmith.controllers.launching.allowance import Allowance
from nodesmith.controllers.launching.freshness import vouched_for
from nodesmith.controllers.launching.launch import Buyer, buy_many
from nodesmith.controllers.launching.unschedulable import Refused
from nodesmith.decisions.provisioning import Inputs, by_hand, replicas
from nodesmith.errors import Conflict
from nodesmith.launcheffects import Settled, TypeLookup
from nodesmith.model.functions.health import Heartbeat


def buy_without_pods(
    run: Buyer,
    inputs: Inputs,
    last_heartbeat: Callable[[], Heartbeat | None],
    types: TypeLookup,
    allowance: Allowance,
) -> tuple[Refused | None, Settled]:
    """Buy the nodes that users' NodeClaims and static NodePools request, or return the reasons why they get none.

    The first value is None if a purchase was tried, so that the caller must look again. Raises Transient, Rejected.
    """
    own, (static, short) = by_hand(vouched_for(inputs, last_heartbeat)), replicas(inputs)
    planned = [*own.planned, *static]
    if not planned:
        named = {f"NodeClaim/{name}": why for name, why in own.refused.items()}
        named |= {f"NodePool/{name}": why for name, why in short.items()}
        return Refused(named, own.unschedulable), Settled()
    settled = Settled()
    with suppress(Conflict):  # another run was first, perhaps with the same nodes
        settled, _ = buy_many(run, planned, inputs.ledger, types, inputs.decision, allowance)
    return None, settled
