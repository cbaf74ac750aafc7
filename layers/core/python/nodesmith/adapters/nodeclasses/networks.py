"""Subnets and security groups that an EC2NodeClass's selectors select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith.adapters.aws.calls import rows
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.nodeclasses.nodeclasses import SecurityGroupSelectorTerm, SubnetSelectorTerm
from nodesmith.model.nodeclasses.status import SecurityGroup, Subnet, Unresolved

Filter = dict[str, Any]
_MOST_TAGS, _MOST_VALUES = 3, 3
"""The most tags of a selector without a match that are looked up, and the most values shown for one."""


def subnets(
    ec2: Any, terms: Sequence[SubnetSelectorTerm], ip_family: str, vpc: str
) -> tuple[tuple[Subnet, ...], str]:
    """Return the subnets that any term selects, most free addresses first, and which of them nodes cannot use.

    Nodes need an IPv4 address, and in an IPv6 cluster an IPv6 address as well. Raises Unresolved if no subnet is left,
    with the values of the tags in the cluster's VPC.
    """
    queries = [*_by_id("subnet-id", terms), *(tag_filters(term.tags) for term in terms if not term.id)]
    described = {raw["SubnetId"]: raw for raw in _all(ec2, "describe_subnets", "Subnets", queries)}
    lacking = {id_: lack for id_, raw in described.items() if (lack := _lack(raw, ip_family))}
    found = [_subnet(raw) for id_, raw in described.items() if id_ not in lacking]
    left_out = "; ".join(f"{id_} {lacking[id_]}" for id_ in sorted(lacking))
    if not found and left_out:
        raise Unresolved(
            "SubnetsNotFound",
            f"no subnet of spec.subnetSelectorTerms [{_shown(terms)}] has the addresses that nodes need: {left_out}",
        )
    if not found:
        likely = _likely(ec2, "describe_subnets", "Subnets", terms, vpc)
        raise Unresolved(
            "SubnetsNotFound",
            f"no subnet matches spec.subnetSelectorTerms [{_shown(terms)}]{likely}: tag the subnets that new nodes "
            "may use, or name them by id",
        )
    return tuple(sorted(found, key=lambda s: (-s.free_ips, s.id))), left_out and f"left out: {left_out}"


def _subnet(raw: Mapping[str, Any]) -> Subnet:
    free = int(raw.get("AvailableIpAddressCount", 0))
    return Subnet(raw["SubnetId"], raw["AvailabilityZone"], raw.get("AvailabilityZoneId", ""), free)


def _lack(raw: Mapping[str, Any], ip_family: str) -> str:
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
    found = {
        raw["GroupId"]: SecurityGroup(raw["GroupId"], raw.get("GroupName", ""))
        for raw in _all(ec2, "describe_security_groups", "SecurityGroups", queries)
    }
    if not found:
        likely = _likely(ec2, "describe_security_groups", "SecurityGroups", terms, vpc)
        raise Unresolved(
            "SecurityGroupsNotFound",
            f"no security group matches spec.securityGroupSelectorTerms [{_shown(terms)}]{likely}: tag the groups "
            "that new nodes belong to, or name them by id or group name",
        )
    return tuple(found[group] for group in sorted(found))


def _likely(ec2: Any, call: str, key: str, terms: Iterable[Any], vpc: str) -> str:
    """Return which values the tags of a selector have in a VPC, for the first tag that has another value.

    Other VPCs may belong to other clusters, whose names are not for this one to see. Example: `, but there are some
    with karpenter.sh/discovery=web, did you mean 'web'?`
    """
    wanted = {(key, value) for term in terms for key, value in term.tags.items() if value != "*"}
    for name, value in sorted(wanted)[:_MOST_TAGS] if vpc else ():
        tagged = [{"Name": "tag-key", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
        there = _all(ec2, call, key, [tagged])
        values = {t["Value"] for raw in there for t in raw.get("Tags", ()) if t["Key"] == name} - {value}
        if values:
            shown = ", ".join(f"{name}={each}" for each in sorted(values)[:_MOST_VALUES])
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
    """Return one query for all ids. It uses a filter, with which unknown ids are not an error."""
    ids = sorted({term.id for term in terms if term.id})
    return [[{"Name": name, "Values": ids}]] if ids else []


def _all(ec2: Any, call: str, key: str, queries: Iterable[list[Filter]]) -> Iterator[Mapping[str, Any]]:
    for filters in queries:
        yield from rows(ec2, call, key, Filters=filters)


def _shown(terms: Iterable[Any]) -> str:
    return "; ".join(map(term_text, terms))
