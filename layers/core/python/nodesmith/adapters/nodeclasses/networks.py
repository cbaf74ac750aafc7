"""Subnets and security groups that an EC2NodeClass's selectors select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith.adapters.aws.calls import rows
from nodesmith.adapters.nodeclasses.unresolved import Unresolved
from nodesmith.model.nodeclasses.selectorterms import SecurityGroupSelectorTerm, SubnetSelectorTerm
from nodesmith.model.nodeclasses.status import SecurityGroup, Subnet

Filter = dict[str, Any]


def subnets(ec2: Any, terms: Sequence[SubnetSelectorTerm]) -> tuple[Subnet, ...]:
    """Return the subnets that any term selects, ordered by free addresses, most first. Raises Unresolved."""
    queries = [*_by_id("subnet-id", terms), *(tag_filters(term.tags) for term in terms if not term.id)]
    found = {
        raw["SubnetId"]: Subnet(
            raw["SubnetId"],
            raw["AvailabilityZone"],
            raw.get("AvailabilityZoneId", ""),
            int(raw.get("AvailableIpAddressCount", 0)),
        )
        for raw in _all(ec2, "describe_subnets", "Subnets", queries)
    }
    if not found:
        raise Unresolved(
            "SubnetsNotFound",
            f"no subnet matches spec.subnetSelectorTerms [{_shown(terms)}]: tag the subnets that new nodes may use, "
            "or name them by id",
        )
    return tuple(sorted(found.values(), key=lambda s: (-s.free_ips, s.id)))


def security_groups(ec2: Any, terms: Sequence[SecurityGroupSelectorTerm]) -> tuple[SecurityGroup, ...]:
    """Return the security groups that any term selects, ordered by id. Raises Unresolved."""
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
        raise Unresolved(
            "SecurityGroupsNotFound",
            f"no security group matches spec.securityGroupSelectorTerms [{_shown(terms)}]: tag the groups that new "
            "nodes belong to, or name them by id or group name",
        )
    return tuple(found[group] for group in sorted(found))


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
