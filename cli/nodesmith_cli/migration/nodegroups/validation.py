"""Whether the objects of groups are valid. User data that nodes could not start with is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodesmith.decisions.launch.validation import launch_obstacle
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_cli.manifests.validating.command import check
from nodesmith_cli.migration.nodegroups.fields import Outcome
from nodesmith_cli.migration.nodegroups.groups import TEMPLATE, GroupContext
from nodesmith_cli.migration.nodegroups.merging import Merged
from nodesmith_cli.migration.nodegroups.pools import Converted
from nodesmith_cli.planning.nodeclasses import assumed_cluster
from nodesmith_formats.manifests.manifests import Document

_USER_DATA = "spec.userData"


def proven(converted: Converted) -> Converted:
    """Return a group with mergeable user data. Other user data is left out, and the account gives the reason."""
    manifest = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "proven"},
        "spec": converted.nodeclass,
    }
    nodeclass = parse_nodeclass(manifest).value
    obstacle = launch_obstacle(nodeclass, assumed_cluster("cluster", "ipv4")) if nodeclass else None
    if obstacle is not None and obstacle.field.startswith(_USER_DATA):
        converted.nodeclass.pop("userData")
        remedy = f"it cannot be merged: {obstacle.message}. Correct it and set {_USER_DATA}"
        converted.account.replace_record((TEMPLATE, "UserData"), Outcome.NO_EQUAL, remedy)
    return converted


def valid(groups_merged: Sequence[Merged], context: GroupContext) -> tuple[list[Merged], list[str]]:
    """Return the objects without errors, and a sentence about each group whose objects `nodesmith validate` refuses."""
    wrong: dict[tuple[str, str], str] = {}
    for merged in groups_merged:
        for manifest, problems in (
            (merged.pool, parse_nodepool(merged.pool).problems),
            (merged.nodeclass, parse_nodeclass(merged.nodeclass).problems),
        ):
            for problem in (p for p in problems if p.fatal):
                place = (manifest["kind"], manifest["metadata"]["name"])
                wrong.setdefault(place, f"{problem.field} is {problem.found}: {problem.remedy}")
    for finding in check(list(documents(groups_merged)), context.catalog.region):
        kind, _, name = finding.fault.object.partition("/")
        if finding.is_error:
            wrong.setdefault((kind, name), f"{finding.fault.field} {finding.fault.message}".strip())
    valid_groups: list[Merged] = []
    refusals: list[str] = []
    for merged in groups_merged:
        reason = next((wrong[place] for place in _places(merged) if place in wrong), "")
        if reason:
            groups = ", ".join(member.group.name for member in merged.members)
            refusals.append(f"{groups}: not written, since the result would not be valid: {reason}")
        else:
            valid_groups.append(merged)
    return valid_groups, refusals


def documents(groups: Iterable[Merged]) -> Iterator[Document]:
    """Yield each object once, as if read from a file."""
    places: set[tuple[str, str]] = set()
    for merged in groups:
        for manifest, place in zip(merged.manifests, _places(merged), strict=True):
            if place not in places:
                places.add(place)
                yield Document(manifest, "migrated", len(places))


def _places(merged: Merged) -> list[tuple[str, str]]:
    return [(str(m["kind"]), str(m["metadata"]["name"])) for m in merged.manifests]
