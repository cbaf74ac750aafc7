"""What AWS still has of a connected cluster, and which parts disconnect removes. Pure: values only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodesmith.model.functions import TALKING
from nodesmith.registration import parameter_name
from nodesmith_cli.connecting.observed import Association, Entry, NodeRole
from nodesmith_cli.connecting.steps.actions import (
    AGENT,
    DeleteAgent,
    DeleteAssociation,
    DeleteEntries,
    DeleteItems,
    DeleteNodeRole,
    DeleteObjects,
    DeleteProfiles,
    DeleteRegistration,
    DeleteTemplates,
    RemoveAction,
    ResourceState,
    Row,
    Untag,
)
from nodesmith_formats.wording import counted, some


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What exists. `entries` are all access entries by principal; `profiles` are names with the roles in them.

    `is_only_association` is True if no other software uses Pod Identity. `objects` and `items` are counts. `has_nodes`
    is True if instances of the cluster are left, such as nodes that were released to Karpenter; `instances` are the ids
    of those that are nodesmith's. If it `is_released`, NodePools and EC2NodeClasses are Karpenter's. `holders` are the
    instance profiles outside `profiles` that hold a node role, by the role's name. If it `is_observed`, nodesmith only
    watches it.
    """

    cluster: str
    region: str
    is_registered: bool = False
    entries: Mapping[str, Entry] = field(default_factory=dict)
    association: Association | None = None
    is_agent_made: bool = False
    is_only_association: bool = True
    tagged: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    profiles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    objects: int = 0
    items: int = 0
    node_roles: tuple[NodeRole, ...] = ()
    has_nodes: bool = False
    is_released: bool = False
    instances: tuple[str, ...] = ()
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_observed: bool = False

    @property
    def is_nothing(self) -> bool:
        """True if AWS has nothing of the cluster."""
        anything = (
            self.is_registered,
            self.association,
            self.functions,
            self.tagged,
            self.templates,
            self.profiles,
            self.objects,
            self.items,
            self.is_agent_made,
            any(role.is_made for role in self.node_roles),
        )
        return not any(anything)

    @property
    def functions(self) -> tuple[str, ...]:
        """The principals that are nodesmith's functions, in any VPC."""
        concerns = "|".join(TALKING)
        name = re.compile(rf"nodesmith-(?:[a-z][a-z0-9-]*-)?(?:{concerns})-{re.escape(self.region)}")
        return tuple(entry for entry in sorted(self.entries) if name.fullmatch(entry.rpartition("/")[2]))


@dataclass(frozen=True, slots=True)
class KeepOptions:
    """The resources to keep: nodes and all that they need, the cluster's data, and the node role."""

    nodes: bool = False
    data: bool = False
    node_role: bool = True


def removals(leftovers: Leftovers, keep: KeepOptions) -> list[Row]:
    """Return the rows of what is removed, in order, and of what stays."""
    return [*_access(leftovers, keep), *_made_at_run_time(leftovers, keep), *_roles(leftovers, keep)]


def _access(leftovers: Leftovers, keep: KeepOptions) -> Iterator[Row]:
    if leftovers.is_registered:
        name = parameter_name(leftovers.cluster, observed=leftovers.is_observed)
        yield _goes(f"registration {name}", "", DeleteRegistration())
    if leftovers.functions:
        names = some(function.rpartition("/")[2] for function in leftovers.functions)
        yield _goes("access entries of functions", names, DeleteEntries(leftovers.functions))
    if leftovers.association is not None:
        yield _goes(
            "Pod Identity association of the forwarder", "", DeleteAssociation(leftovers.association.id)
        )
    if leftovers.is_agent_made and leftovers.is_only_association:
        yield _goes(f"add-on {AGENT}", "installed by connect", DeleteAgent())
    elif leftovers.is_agent_made:
        yield _stays(f"add-on {AGENT}", "other Pod Identity associations need it")
    if leftovers.tagged and keep.nodes:
        yield _stays("discovery tags", some(leftovers.tagged))
    elif leftovers.tagged:
        yield _goes("discovery tags", some(leftovers.tagged), Untag(leftovers.tagged))


def _made_at_run_time(leftovers: Leftovers, keep: KeepOptions) -> Iterator[Row]:
    if leftovers.templates:
        yield _goes(
            "launch templates",
            counted(len(leftovers.templates), "template"),
            DeleteTemplates(leftovers.templates),
        )
    if leftovers.profiles and keep.nodes:
        yield _stays("instance profiles", "used by remaining nodes")
    elif leftovers.profiles:
        yield _goes("instance profiles", some(leftovers.profiles), DeleteProfiles(leftovers.profiles))
    for what, count, noun, action in (
        ("snapshots, decisions and metrics in the bucket", leftovers.objects, "object", DeleteObjects()),
        ("items in the table", leftovers.items, "item", DeleteItems()),
    ):
        if count and (keep.data or keep.nodes):
            yield _stays(what, counted(count, noun))
        elif count:
            yield _goes(what, counted(count, noun), action)


def _roles(leftovers: Leftovers, keep: KeepOptions) -> Iterator[Row]:
    for role in leftovers.node_roles:
        entry = [
            leftover
            for leftover in leftovers.entries
            if leftover.rpartition("/")[2] == role.name and leftovers.entries[leftover].is_made
        ]
        if keep.nodes or leftovers.has_nodes:
            yield _stays(f"role {role.name}", "used by remaining nodes")
            continue
        if entry:
            yield _goes(f"access entry of {role.name}", "created by connect", DeleteEntries(tuple(entry)))
        if not role.is_made:
            continue
        if keep.node_role:
            yield _stays(f"role {role.name}", "use --delete-node-role to delete it")
        elif holders := leftovers.holders.get(role.name):
            # IAM roles belong to no region: a cluster of the same name in another one may have this role, too.
            yield _stays(f"role {role.name}", f"in instance profile {some(holders)}")
        else:
            yield _goes(
                f"role {role.name}", "created by connect", DeleteNodeRole(role.name, tuple(role.policies))
            )


def _goes(what: str, detail: str, action: RemoveAction) -> Row:
    return Row(what, ResourceState.REMOVED, detail, action)


def _stays(what: str, reason: str) -> Row:
    return Row(what, ResourceState.KEPT, reason)
