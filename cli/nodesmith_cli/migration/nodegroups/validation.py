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


def proven(each: Converted) -> Converted:
    """Return a group whose user data can be merged. User data that cannot be is left out, and the account says why."""
    manifest = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "proven"},
        "spec": each.nodeclass,
    }
    nodeclass = parse_nodeclass(manifest).value
    obstacle = launch_obstacle(nodeclass, assumed_cluster("cluster", "ipv4")) if nodeclass else None
    if obstacle is not None and obstacle.field.startswith(_USER_DATA):
        each.nodeclass.pop("userData")
        remedy = f"it cannot be merged: {obstacle.message}. Correct it and set {_USER_DATA}"
        each.account.retell((TEMPLATE, "UserData"), Outcome.NO_EQUAL, remedy)
    return each


def valid(found: Sequence[Merged], context: GroupContext) -> tuple[list[Merged], list[str]]:
    """Return the objects without errors, and a sentence about each group whose objects `nodesmith validate` refuses."""
    wrong: dict[tuple[str, str], str] = {}
    for each in found:
        for manifest, problems in (
            (each.pool, parse_nodepool(each.pool).problems),
            (each.nodeclass, parse_nodeclass(each.nodeclass).problems),
        ):
            for problem in (p for p in problems if p.fatal):
                place = (manifest["kind"], manifest["metadata"]["name"])
                wrong.setdefault(place, f"{problem.field} is {problem.found}: {problem.remedy}")
    for finding in check(list(documents(found)), context.catalog.region):
        kind, _, name = finding.fault.object.partition("/")
        if finding.is_error:
            wrong.setdefault((kind, name), f"{finding.fault.field} {finding.fault.message}".strip())
    kept: list[Merged] = []
    said: list[str] = []
    for each in found:
        why = next((wrong[place] for place in _places(each) if place in wrong), "")
        if why:
            groups = ", ".join(member.group.name for member in each.members)
            said.append(f"{groups}: not written, since the result would not be valid: {why}")
        else:
            kept.append(each)
    return kept, said


def documents(found: Iterable[Merged]) -> Iterator[Document]:
    """Yield each object once, as if read from a file."""
    seen: set[tuple[str, str]] = set()
    for each in found:
        for manifest, place in zip(each.manifests, _places(each), strict=True):
            if place not in seen:
                seen.add(place)
                yield Document(manifest, "migrated", len(seen))


def _places(each: Merged) -> list[tuple[str, str]]:
    return [(str(m["kind"]), str(m["metadata"]["name"])) for m in each.manifests]
