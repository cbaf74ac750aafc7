"""Instances that nobody waits for: the dearest garbage there is."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith.decisions.garbagecollection.facts import YOUNG, Facts


def superfluous(facts: Facts) -> Iterator[tuple[str, str]]:
    """Name, each with a reason, the living instances without a claim, and those beside the one that their claim names.

    Of two instances for a claim that names none yet, provisioning will adopt one; the other goes once it has.
    """
    claims = {claim.name: claim for claim in facts.ledger.claims}
    named = {claim.instance_id for claim in facts.ledger.claims}
    for instance in sorted(facts.instances, key=lambda i: i.id):
        if instance.id in named or facts.now - instance.launched_at < YOUNG:
            continue
        claim = claims.get(instance.claim)
        if claim is None:
            yield instance.id, "Unclaimed"
        elif claim.instance_id:
            yield instance.id, "Doubled"
