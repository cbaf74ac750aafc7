"""What we made beside instances, and nothing needs any more: templates, profiles, volumes, interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.garbagecollection.facts import Facts
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.karpenter.nodeclaims import NodeClaim

UNUSED = timedelta(hours=1)
"""From when on a launch template or instance profile that nothing uses is garbage."""
DETACHED = timedelta(minutes=10)
"""From when on a volume or interface that is seen attached to nothing is garbage."""

Needs = Callable[[Owned], bool]


def unneeded(facts: Facts) -> list[Owned]:
    """Return what may be deleted, by kind and id."""
    found: list[Owned] = []
    for kind in sorted(facts.owned):
        needs = _needs(kind, facts)
        found += sorted((each for each in facts.owned[kind] if not needs(each)), key=lambda o: o.id)
    return found


def still_detached(
    before: Mapping[str, datetime], owned: Mapping[Kind, Sequence[Owned]], now: datetime
) -> dict[str, datetime]:
    """Carry on the record of what is attached to nothing: EC2 does not say since when."""
    found = (*owned.get(Kind.VOLUME, ()), *owned.get(Kind.NETWORK_INTERFACE, ()))
    return {each.id: before.get(each.id, now) for each in found}


def _needs(kind: Kind, facts: Facts) -> Needs:
    match kind:
        case Kind.LAUNCH_TEMPLATE:
            return _needs_template(facts)
        case Kind.INSTANCE_PROFILE:
            return _needs_profile(facts)
        case Kind.VOLUME | Kind.NETWORK_INTERFACE:
            return _needs_detached(facts)
        case _:
            assert_never(kind)


def _needs_template(facts: Facts) -> Needs:
    """Needed is what a pending claim asks for, and what was made or launched from within the hour."""
    asked = {name for claim in facts.pending for name in _templates(claim)}
    last_use: dict[str, datetime] = {}
    for instance in facts.instances:
        known = last_use.get(instance.template_id, instance.launched_at)
        last_use[instance.template_id] = max(known, instance.launched_at)

    def needs(template: Owned) -> bool:
        made_at = template.created_at or facts.now
        return template.name in asked or facts.now - max(made_at, last_use.get(template.id, made_at)) < UNUSED

    return needs


def _needs_profile(facts: Facts) -> Needs:
    """Needed is what a living instance has, for without it the node loses its rights, and what a coming one may have.

    That is the profile that an EC2NodeClass has now; where it is not known, all that it ever had.
    """
    used = {instance.instance_profile for instance in facts.instances}
    coming = {claim.nodeclass.name for claim in facts.pending}
    owners = {
        str(metadata.get("uid") or metadata.get("name")): str(metadata.get("name"))
        for metadata in (manifest.get("metadata") or {} for manifest in facts.snapshot.nodeclasses)
    }
    current = {name: status.instance_profile for name, status in facts.ledger.nodeclasses.items()}

    def needs(profile: Owned) -> bool:
        if (
            profile.name in {*used, *current.values()}
            or facts.now - (profile.created_at or facts.now) < UNUSED
        ):
            return True
        owner = owners.get(profile.owner_uid)
        if owner is None:
            return not coming <= set(owners.values())  # a claim of its own EC2NodeClass may still be launched
        return owner in coming or not current.get(owner)

    return needs


def _needs_detached(facts: Facts) -> Needs:
    """Needed is what has been loose for a short time only, or belongs to a claim that still stands."""
    standing = {claim.name for claim in facts.ledger.claims} | {i.claim for i in facts.instances}

    def needs(owned: Owned) -> bool:
        loose_since = facts.detached_since.get(owned.id, facts.now)
        return facts.now - loose_since < DETACHED or bool(owned.claim and owned.claim in standing)

    return needs


def _templates(claim: NodeClaim) -> list[str]:
    """The launch templates of a claim's request, as the request is written into the ledger."""
    overrides = claim.launch.get("overrides")
    return [str(override[0]) for override in overrides] if isinstance(overrides, Sequence) else []
