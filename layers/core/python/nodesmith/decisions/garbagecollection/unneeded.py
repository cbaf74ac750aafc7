"""AWS resources of nodesmith that are no longer needed: templates, instance profiles, volumes, network interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.garbagecollection.facts import Facts
from nodesmith.model.apimachinery.labels import INSTANCE_PROFILE
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.karpenter.nodeclaims import NodeClaim

UNUSED = timedelta(hours=1)
"""How long a launch template or instance profile must be unused to be garbage."""
DETACHED = timedelta(minutes=10)
"""How long a volume or network interface must be seen detached to be garbage."""

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
    """Return since when each detached volume or interface has been seen, by id. EC2 does not record that."""
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
    """Return a predicate: templates that a pending claim requests, or that were made or used within the hour."""
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
    """Return a predicate: profiles of living instances, whose nodes would lose their permissions, and of future ones.

    A future instance has the current profile of its EC2NodeClass. If that is unknown, all profiles that the
    EC2NodeClass ever had are needed. An EC2NodeClass may also name a profile that was created for another one.
    """
    used = {instance.instance_profile for instance in facts.instances}
    used |= {claim.annotations.get(INSTANCE_PROFILE, "") for claim in facts.ledger.claims}
    used |= {
        str((manifest.get("spec") or {}).get("instanceProfile") or "")
        for manifest in facts.snapshot.nodeclasses
    }
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
    """Return a predicate: resources that were detached lately, or that belong to an existing claim or instance."""
    known = {claim.name for claim in facts.ledger.claims} | {i.claim for i in facts.instances}

    def needs(owned: Owned) -> bool:
        loose_since = facts.detached_since.get(owned.id, facts.now)
        return facts.now - loose_since < DETACHED or bool(owned.claim and owned.claim in known)

    return needs


def _templates(claim: NodeClaim) -> list[str]:
    """Return the names of the launch templates in a claim's request, as stored in the ledger."""
    overrides = claim.launch.get("overrides")
    return [str(override[0]) for override in overrides] if isinstance(overrides, Sequence) else []
