"""Subnets, security groups, capacity reservations and the placement group that an EC2NodeClass's selectors select."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.nodeclasses.nodeclasses import (
    CapacityReservationSelectorTerm,
    PlacementGroupSelector,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    PlacementGroup,
    SecurityGroup,
    Subnet,
    Unresolved,
)

Filter = dict[str, Any]
_MOST_TAGS, _MOST_VALUES = 3, 3
"""How many tags of a selector without a match are looked up at most, and how many values of a tag are shown."""


def subnets(
    ec2: Any, terms: Sequence[SubnetSelectorTerm], ip_family: str, vpc: str
) -> tuple[tuple[Subnet, ...], str]:
    """Return the subnets that any term selects, most free addresses first, and which of them nodes cannot use.

    Nodes need an IPv4 address, and in an IPv6 cluster an IPv6 address as well. If no subnet is left, this raises
    Unresolved, with the values that the tags have in the cluster's VPC.
    """
    queries = [*_by_id("subnet-id", terms), *(tag_filters(term.tags) for term in terms if not term.id)]
    described = {raw["SubnetId"]: raw for raw in _all(ec2, "describe_subnets", "Subnets", queries)}
    lacking = {id_: lack for id_, raw in described.items() if (lack := _lacking(raw, ip_family))}
    usable = [_subnet(raw) for id_, raw in described.items() if id_ not in lacking]
    left_out = "; ".join(f"{id_} {lacking[id_]}" for id_ in sorted(lacking))
    if not usable and left_out:
        raise Unresolved(
            "SubnetsNotFound",
            f"no subnet of spec.subnetSelectorTerms [{_shown(terms)}] has the addresses that nodes need: {left_out}",
        )
    if not usable:
        likely = _likely(ec2, "describe_subnets", "Subnets", terms, vpc)
        raise Unresolved(
            "SubnetsNotFound",
            f"no subnet matches spec.subnetSelectorTerms [{_shown(terms)}]{likely}: tag the subnets that new nodes "
            "may use, or name them by id",
        )
    return tuple(sorted(usable, key=lambda s: (-s.free_ips, s.id))), left_out and f"left out: {left_out}"


def _subnet(raw: Mapping[str, Any]) -> Subnet:
    free = int(raw.get("AvailableIpAddressCount", 0))
    return Subnet(raw["SubnetId"], raw["AvailabilityZone"], raw.get("AvailabilityZoneId", ""), free)


def _lacking(raw: Mapping[str, Any], ip_family: str) -> str:
    """Return what a subnet lacks for nodes, and the remedy; empty if it lacks nothing."""
    if raw.get("Ipv6Native"):
        return "has only IPv6 addresses, and EKS nodes need an IPv4 address too: select one with both"
    blocks = raw.get("Ipv6CidrBlockAssociationSet") or ()
    has_ipv6 = any((b.get("Ipv6CidrBlockState") or {}).get("State") == "associated" for b in blocks)
    if ip_family == "ipv6" and not has_ipv6:
        return "has no IPv6 CIDR block, but the cluster is IPv6: associate one with it"
    return ""


def security_groups(
    ec2: Any, terms: Sequence[SecurityGroupSelectorTerm], vpc: str
) -> tuple[SecurityGroup, ...]:
    """Return the security groups that any term selects, ordered by id. Raises Unresolved, as `subnets` does."""
    names = sorted({term.name for term in terms if term.name and not term.id})
    queries = [
        *_by_id("group-id", terms),
        *([[{"Name": "group-name", "Values": names}]] if names else []),
        *(tag_filters(term.tags) for term in terms if not term.id and not term.name),
    ]
    groups = {
        raw["GroupId"]: SecurityGroup(raw["GroupId"], raw.get("GroupName", ""))
        for raw in _all(ec2, "describe_security_groups", "SecurityGroups", queries)
    }
    if not groups:
        likely = _likely(ec2, "describe_security_groups", "SecurityGroups", terms, vpc)
        raise Unresolved(
            "SecurityGroupsNotFound",
            f"no security group matches spec.securityGroupSelectorTerms [{_shown(terms)}]{likely}: tag the groups "
            "that new nodes belong to, or name them by id or group name",
        )
    return tuple(groups[group] for group in sorted(groups))


def _likely(ec2: Any, call: str, key: str, terms: Iterable[Any], vpc: str) -> str:
    """Return the values in a VPC of the first of a selector's tags that has other values there.

    Other VPCs may belong to other clusters, and this one must not show their names. Example: `, but there are some with
    karpenter.sh/discovery=web, did you mean 'web'?`
    """
    tags = {(key, value) for term in terms for key, value in term.tags.items() if value != "*"}
    for name, value in sorted(tags)[:_MOST_TAGS] if vpc else ():
        tagged = [{"Name": "tag-key", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
        resources = _all(ec2, call, key, [tagged])
        values = {t["Value"] for raw in resources for t in raw.get("Tags", ()) if t["Key"] == name} - {value}
        if values:
            shown = ", ".join(f"{name}={tag_value}" for tag_value in sorted(values)[:_MOST_VALUES])
            return f", but there are some with {shown}{did_you_mean(value, values).rstrip('?')}"
    return ""


def tag_filters(tags: Mapping[str, str]) -> list[Filter]:
    """Return filters for a term's tags, all of which must match. The value `*` matches any value of the key."""
    return [
        {"Name": "tag-key", "Values": [key]}
        if tags[key] == "*"
        else {"Name": f"tag:{key}", "Values": [tags[key]]}
        for key in sorted(tags)
    ]


def term_text(term: Any) -> str:
    """Return a selector term as readable text: `id subnet-1`, `tags karpenter.sh/discovery=express`."""
    fields = ("alias", "id", "name", "owner", "ssm_parameter")
    words = [
        f"{field.replace('_', ' ')} {getattr(term, field)}" for field in fields if getattr(term, field, "")
    ]
    if term.tags:
        words.append("tags " + ", ".join(f"{key}={term.tags[key]}" for key in sorted(term.tags)))
    return " ".join(words)


def _by_id(name: str, terms: Iterable[Any]) -> list[list[Filter]]:
    """Return one query for all ids. It uses a filter, so that unknown ids are no error."""
    ids = sorted({term.id for term in terms if term.id})
    return [[{"Name": name, "Values": ids}]] if ids else []


def _all(ec2: Any, call: str, key: str, queries: Iterable[list[Filter]]) -> Iterator[Mapping[str, Any]]:
    for filters in queries:
        yield from rows(ec2, call, key, Filters=filters)


def _shown(terms: Iterable[Any]) -> str:
    return "; ".join(map(term_text, terms))


CAPACITY_BLOCK = "capacity-block"
_ENDED = frozenset({"expired", "cancelled", "failed", "payment-failed", "unsupported"})
_NO_SUCH_ID = frozenset({"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"})
BLOCK_ENDS_EARLY = timedelta(minutes=40)
"""EC2 starts terminating a block's instances 30 minutes before its end. Karpenter drains ten minutes earlier."""


def capacity_reservations(
    ec2: Any, terms: Sequence[CapacityReservationSelectorTerm], now: datetime, notes: list[str]
) -> tuple[CapacityReservation, ...]:
    """Return the active reservations that any term selects, ordered by id.

    Reservations come and go, so it is no error if there is none. `notes` gets a sentence about each unusable
    reservation that a term names by id.
    """
    named = [*_named(ec2, terms, notes)]
    notes += filter(None, (_unusable(raw, now) for raw in named))
    selected = [*named, *_filtered(ec2, terms)]
    active = {
        raw["CapacityReservationId"]: _reservation(raw, now)
        for raw in selected
        if raw.get("State") == "active" and (raw.get("EndDate") is None or raw["EndDate"] > now)
    }
    return tuple(active[id_] for id_ in sorted(active))


def _unusable(raw: Mapping[str, Any], now: datetime) -> str:
    """Return why a reservation has ended or cannot be used yet; empty if it can be used."""
    kind = "Capacity Block" if raw.get("ReservationType") == CAPACITY_BLOCK else "capacity reservation"
    subject, ends_at, state = f"{kind} {raw['CapacityReservationId']}", raw.get("EndDate"), raw.get("State")
    if (ends_at is not None and ends_at <= now) or state in _ENDED:
        timing = f" at {format_time(ends_at)}" if ends_at is not None else ""
        return f"{subject} has ended{timing}: remove it from spec.capacityReservationSelectorTerms"
    if state != "active":
        starts_at = raw.get("StartDate")
        timing = (
            f": it starts at {format_time(starts_at)}" if starts_at is not None and starts_at > now else ""
        )
        return f"{subject} is {state}{timing}"
    return ""


def _named(
    ec2: Any, terms: Iterable[CapacityReservationSelectorTerm], notes: list[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the reservations named by id, one call each: EC2 has no filter for ids, and an unknown id is an error."""
    for id_ in sorted({term.id for term in terms if term.id}):
        try:
            answer = ec2.describe_capacity_reservations(CapacityReservationIds=[id_])
        except ClientError as error:
            if error_code(error) not in _NO_SUCH_ID:
                raise
            notes.append(
                f"capacity reservation {id_} does not exist: correct spec.capacityReservationSelectorTerms"
            )
        else:
            yield from answer["CapacityReservations"]


def _filtered(ec2: Any, terms: Iterable[CapacityReservationSelectorTerm]) -> Iterator[Mapping[str, Any]]:
    active = {"Name": "state", "Values": ["active"]}
    for term in terms:
        if not term.id:
            named = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
            filters = [{"Name": name, "Values": [value]} for name, value in named.items() if value]
            query = [*tag_filters(term.tags), *filters, active]
            yield from rows(ec2, "describe_capacity_reservations", "CapacityReservations", Filters=query)


def _reservation(raw: Mapping[str, Any], now: datetime) -> CapacityReservation:
    kind, ends_at = raw.get("ReservationType", "default"), raw.get("EndDate")
    return CapacityReservation(
        id=raw["CapacityReservationId"],
        instance_type=raw["InstanceType"],
        zone=raw["AvailabilityZone"],
        available=int(raw["AvailableInstanceCount"]),
        kind=kind,
        match_criteria=raw.get("InstanceMatchCriteria", "targeted"),
        owner_id=raw.get("OwnerId", ""),
        interruptible=bool(raw.get("Interruptible")),
        expiring=kind == CAPACITY_BLOCK and ends_at is not None and ends_at - now <= BLOCK_ENDS_EARLY,
        ends_at=ends_at,
    )


_UNKNOWN = frozenset({"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Malformed"})
_NOT_FOUND, _FAILED = "PlacementGroupNotFound", "PlacementGroupResolutionFailed"
_RUNNING = {"Name": "instance-state-name", "Values": ["pending", "running"]}


def placement_group(
    ec2: Any, selector: PlacementGroupSelector, usable_subnets: Collection[Subnet]
) -> PlacementGroup:
    """Return the group. Raises Unresolved if it does not exist, or if its instances could not use these subnets."""
    raw = _described_group(ec2, selector)
    name, state = raw.get("GroupName", ""), raw.get("State", "")
    if state != "available":
        message = (
            f"spec.placementGroupSelector: placement group {name} is {state}: wait until it is available"
        )
        raise Unresolved(_FAILED, message)
    group = PlacementGroup(
        raw["GroupId"],
        name,
        raw["Strategy"],
        int(raw.get("PartitionCount") or 0),
        _instances(ec2, name),
        raw.get("SpreadLevel") or "rack",
    )
    zones = sorted({subnet.zone for subnet in usable_subnets})
    if group.only_zone and zones and group.only_zone not in zones:
        raise Unresolved(
            _FAILED,
            f"spec.placementGroupSelector: the instances of cluster placement group {name} are in {group.only_zone}, "
            f"where spec.subnetSelectorTerms select no subnet (only in {', '.join(zones)}): select a subnet there, or "
            "use another placement group",
        )
    return group


def _described_group(ec2: Any, selector: PlacementGroupSelector) -> Mapping[str, Any]:
    query = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
    try:
        groups = ec2.describe_placement_groups(**query)["PlacementGroups"]
    except ClientError as error:
        if error_code(error) not in _UNKNOWN:
            raise
        groups = []
    if groups:
        first: Mapping[str, Any] = groups[0]
        return first
    others = ec2.describe_placement_groups()["PlacementGroups"]
    field = "id" if selector.id else "name"
    names = [other["GroupId" if selector.id else "GroupName"] for other in others]
    hint = did_you_mean(selector.id or selector.name, names)
    raise Unresolved(
        _NOT_FOUND,
        f"spec.placementGroupSelector.{field}: there is no placement group {selector.id or selector.name!r} in this "
        f"region{hint}: create it, or correct the {field}",
    )


def _instances(ec2: Any, name: str) -> tuple[tuple[str, int], ...]:
    """Return the number of the group's instances by zone, including instances that other software launched."""
    inside = {"Name": "placement-group-name", "Values": [name]}
    reservations = rows(ec2, "describe_instances", "Reservations", Filters=[inside, _RUNNING])
    zones = (
        instance["Placement"]["AvailabilityZone"]
        for reservation in reservations
        for instance in reservation["Instances"]
    )
    return tuple(sorted(Counter(zones).items()))
