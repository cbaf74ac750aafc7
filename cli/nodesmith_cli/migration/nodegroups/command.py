"""The implementation of `nodesmith migrate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith.errors import NodesmithError, Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_cli.migration.nodegroups.fields import FieldReport, Outcome
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, SCALING_GROUP, Found
from nodesmith_cli.migration.nodegroups.merging import Merged, merged
from nodesmith_cli.migration.nodegroups.placement import Placing, placing
from nodesmith_cli.migration.nodegroups.pools import Converted, converted
from nodesmith_cli.migration.nodegroups.reading import GroupReading
from nodesmith_cli.migration.nodegroups.validation import proven, valid
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.terminal import console
from nodesmith_formats.manifests.manifests import Document
from nodesmith_formats.wording import counted, printable

OK, INCOMPLETE = 0, 1
_STYLES = {Outcome.CHANGED: "yellow", Outcome.NO_EQUAL: "red"}
_SHOWN_PODS = 20
_YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """What to convert. `kubeconfig` is None if no pods are planned; no names in `groups` mean all groups."""

    cluster: str
    groups: tuple[str, ...] = ()
    kubeconfig: str | None = None
    one_per_group: bool = False
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """The result. `problems` are sentences about groups without objects and about what could not be read."""

    found: tuple[Merged, ...]
    problems: tuple[str, ...]
    placing: Placing | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every group has its objects, and every pod a place."""
        return not self.problems and not (self.placing and self.placing.unplaced)


def run(
    request: MigrateRequest,
    client: Callable[[str], Any],
    region: str,
    output: Literal["yaml", "table", "json"],
) -> int:
    """Convert the groups, print the result, and return the exit status.

    Raises Rejected for an unknown cluster or group, and Rejected or Transient if AWS does not answer.
    """
    with progress("reading the cluster and its node groups", key="migrate-reading"):
        cluster, unread = _documents(request)
        groups_found = GroupReading(client, region).groups_of(request.cluster)
    if cluster:
        from nodesmith_cli.costs.savings.assumptions import selected_labels

        pods = (document.manifest for document in cluster if document.manifest["kind"] == "Pod")
        groups_found = replace(
            groups_found, context=replace(groups_found.context, selected=selected_labels(pods))
        )
    done = migrated(_restricted(groups_found, request), apart=request.one_per_group)
    if cluster:
        with progress("planning the pods", key="migrate-placing", size=len(cluster)):
            placed = placing(cluster, done.found, groups_found.context)
        unread += _other_cluster(done.found, placed, request)
        done = replace(done, placing=placed)
    done = replace(done, problems=(*unread, *done.problems))
    if request.path is not None:
        _write(request.path, done.found)
    _print(done, request, output)
    return OK if done.is_complete else INCOMPLETE


def migrated(all_groups: Found, *, apart: bool) -> Migration:
    """Return the objects of all groups that have an equal. The others are among the problems."""
    problems = list(all_groups.problems)
    sound: list[Converted] = []
    for group in all_groups.groups:
        result = group.obstacle or converted(group, all_groups.context)
        if isinstance(result, str):
            problems.append(f"{group}: not converted: {result}")
        else:
            sound.append(proven(result))
    kept, refused = valid(merged(sound, apart=apart), all_groups.context)
    return Migration(tuple(kept), (*problems, *refused))


def _documents(request: MigrateRequest) -> tuple[list[Document], list[str]]:
    """Return the objects of the live cluster, none with the reason if it cannot be read."""
    if request.kubeconfig is None:
        return [], []
    from nodesmith_cli.access.cluster import cluster_documents

    try:
        return list(cluster_documents(request.kubeconfig)), []
    except NodesmithError as error:
        return [], [f"pods were not planned: {error}"]


def _other_cluster(groups: Sequence[Merged], placed: Placing, request: MigrateRequest) -> list[str]:
    """Return a sentence if groups have nodes in AWS, but none in the cluster that was read."""
    desired = [
        member.account.get(*path)
        for each in groups
        for member in each.members
        for path in ((NODEGROUP, "scalingConfig", "desiredSize"), (SCALING_GROUP, "DesiredCapacity"))
    ]
    if placed.nodes or not any(desired):
        return []
    where = f"the kubeconfig's cluster {request.kubeconfig}".rstrip()
    return [f"{where} has no node of these groups, so no pod was planned: is it {request.cluster}?"]


def _restricted(all_groups: Found, request: MigrateRequest) -> Found:
    """Return only the named groups, all if none is named. Raises Rejected for a group that does not exist."""
    names = [group.name for group in all_groups.groups]
    for name in request.groups:
        if name not in names:
            hint = did_you_mean(name, names) or f"; groups: {', '.join(names) or 'none'}"
            raise Rejected(f"--group {name}: {request.cluster} has no such group{hint}")
    if not names and not all_groups.problems:
        raise Rejected(
            f"{request.cluster} has no managed node groups, and no Auto Scaling group has the tag "
            f"kubernetes.io/cluster/{request.cluster} or k8s.io/cluster-autoscaler/{request.cluster}"
        )
    kept = [group for group in all_groups.groups if not request.groups or group.name in request.groups]
    return replace(all_groups, groups=tuple(kept))


def manifests_of(groups: Iterable[Merged]) -> list[Mapping[str, Any]]:
    """Return all objects, each once."""
    unique: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in groups:
        for manifest in each.manifests:
            unique.setdefault((manifest["kind"], manifest["metadata"]["name"]), manifest)
    return list(unique.values())


class _Dumper(yaml.SafeDumper):
    """A dumper without aliases, with text of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def as_yaml(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as a YAML stream."""
    return "---\n".join(
        yaml.dump(dict(manifest), Dumper=_Dumper, sort_keys=False, width=10**6) for manifest in manifests
    )


def _write(path: Path, groups: Sequence[Merged]) -> None:
    """Write a file, or a file for each NodePool into a folder. Raises Rejected."""
    files = {path: manifests_of(groups)}
    if path.suffix not in _YAML_SUFFIXES:
        seen: set[int] = set()
        files = {}
        for each in groups:
            files[path / f"{each.name}.yaml"] = [m for m in each.manifests if id(m) not in seen]
            seen.update(map(id, each.manifests))
    try:
        if path.suffix not in _YAML_SUFFIXES:
            path.mkdir(parents=True, exist_ok=True)
        for file, manifests in files.items():
            file.write_text(as_yaml(manifests), encoding="utf-8")
    except OSError as error:
        raise Rejected(f"--write {path}: cannot be written: {error.strerror}") from None


def _print(migration: Migration, request: MigrateRequest, output: str) -> None:
    if output == "json":
        print_data(json.loads(json.dumps(report(migration), default=str)), output, "migration")
        return
    side = console(stderr=output == "yaml")
    if output == "yaml" and request.path is None:
        print(as_yaml(manifests_of(migration.found)), end="")
    for each in migration.found:
        _print_pool(side, each)
    _print_placing(side, migration.placing)
    for problem in migration.problems:
        side.print(printable(problem), style="red")
    groups = sum(len(pool.members) for pool in migration.found)
    summary = f"{counted(groups, 'group')}, {counted(len(migration.found), 'NodePool')}"
    side.print(f"{summary}{f', written to {request.path}' if request.path else ''}", style="dim")


def _print_pool(side: Console, pool: Merged) -> None:
    groups = ", ".join(str(member.group) for member in pool.members)
    title = f"NodePool {pool.name}, EC2NodeClass {pool.nodeclass['metadata']['name']}: {groups}"
    table = Table(title=printable(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("field", "outcome", "became", "reason or remedy"):
        table.add_column(name, overflow="fold")
    rows = dict.fromkeys(row for member in pool.members for row in map(_row, _worth_showing(member)))
    for field, outcome, became, reason in rows:
        table.add_row(
            *(Text(printable(text)) for text in (field, outcome, became, reason)),
            style=_STYLES[Outcome(outcome)],
        )
    if not rows:
        side.print(printable(title), style="bold")
        side.print("every field is kept", style="dim")
    else:
        side.print(table)
    if len(pool.members) > 1:
        reason = (
            "their nodes are identical but for subnets and sizes: one NodePool with the sum of their sizes"
        )
        side.print(f"{reason}; --one-per-group keeps them apart", style="dim")


def _row(field_report: FieldReport) -> tuple[str, str, str, str]:
    return field_report.field, str(field_report.outcome), field_report.became, field_report.explanation


def _worth_showing(member: Converted) -> Iterator[FieldReport]:
    return (
        field_report
        for field_report in member.account.all()
        if field_report.outcome is not Outcome.KEPT and not field_report.is_quiet
    )


def _print_placing(side: Console, placement: Placing | None) -> None:
    if placement is None:
        return
    summary = f"{counted(placement.pods, 'pod')} on {counted(placement.nodes, 'node')} of these groups"
    placed = placement.pods - len(placement.unplaced)
    side.print(f"{summary}: {placed:,} find a place on {counted(placement.planned, 'new node')}")
    for pod in placement.unplaced[:_SHOWN_PODS]:
        fix = f"; {pod.fix}" if pod.fix else ""
        side.print(printable(f"{pod.pod} ({pod.group}) finds none: {pod.reason}{fix}"), style="red")
    if len(placement.unplaced) > _SHOWN_PODS:
        side.print(f"and {len(placement.unplaced) - _SHOWN_PODS} more: see -o json", style="red")


def report(migration: Migration) -> dict[str, Any]:
    """Return the result as JSON data: each field of each group, the objects, the pods, and the problems."""
    return {
        "nodePools": [
            {
                "name": each.name,
                "nodeClass": each.nodeclass["metadata"]["name"],
                "groups": [
                    {
                        "name": member.group.name,
                        "kind": str(member.group.kind),
                        "fields": [_field(field_report) for field_report in member.account.all()],
                    }
                    for member in each.members
                ],
            }
            for each in migration.found
        ],
        "manifests": manifests_of(migration.found),
        "pods": asdict(migration.placing) if migration.placing else None,
        "problems": list(migration.problems),
    }


def _field(field_report: FieldReport) -> dict[str, Any]:
    return {
        "field": field_report.field,
        "value": field_report.value,
        "outcome": str(field_report.outcome),
        "became": field_report.became,
        "remedy" if field_report.outcome is Outcome.NO_EQUAL else "reason": field_report.explanation,
    }
