"""Which pods rules select (`LabelSets`), and which pods may share a node (`PodConflicts`).

Shapes are numbered by what selectors can distinguish: their namespace and the labels that some selector names. A set of
numbers is an integer with bit i for number i, so a selector is evaluated once and then costs one bit test per shape.

Host ports, and anti-affinity and spreads over hostnames, are rules of the form: a node that holds one of these pods
holds at most N pods of a group. A spread with maxSkew 2 allows two of the pods it selects (the emptiest node is assumed
to have none, as a new node does); anti-affinity allows none, or one if the pods match their own term; host ports allow
one. Such a rule holds in whatever order kube-scheduler binds the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.apimachinery.requirements import Requirement, Selector
from nodesmith.model.kubernetes.pods import PodAffinityTerm, Shape

Namespaces = frozenset[str] | None
"""The namespaces that a term applies to; None means all."""


class LabelSets:
    """The label sets of some shapes. It only knows the shapes given at the start."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        shapes = list(dict.fromkeys(shapes))
        keys = sorted(
            {key for shape in shapes for selector in selectors_of(shape) for key in selector.requirements}
        )
        self._numbers: dict[tuple[tuple[str | None, ...], bool], int] = {}
        self._room = 0
        self._number_of: dict[Shape, int] = {}
        for shape in shapes:
            labels_that_matter = (shape.namespace, *(shape.labels.get(key) for key in keys))
            # Room has label sets of its own, see `counted`.
            label_set = labels_that_matter, shape.is_room
            self._number_of[shape] = self._numbers.setdefault(label_set, len(self._numbers))
        self._everything = (1 << len(self._numbers)) - 1
        self._namespaces: dict[str | None, int] = {}
        self._valued: dict[str, dict[str, int]] = {key: {} for key in keys}
        for (values, is_room), number in self._numbers.items():
            self._room |= is_room << number
            self._namespaces[values[0]] = self._namespaces.get(values[0], 0) | 1 << number
            for key, value in zip(keys, values[1:], strict=True):
                if value is not None:
                    self._valued[key][value] = self._valued[key].get(value, 0) | 1 << number
        self._labelled = {key: _union(valued.values()) for key, valued in self._valued.items()}
        self._selected: dict[tuple[str, Namespaces], int] = {}

    @property
    def count(self) -> int:
        """How many label sets there are."""
        return len(self._numbers)

    def number(self, shape: Shape) -> int:
        """Return the number of a shape's label set."""
        return self._number_of[shape]

    def share_label_set(self, shape: Shape, other: Shape) -> None:
        """Register a shape with the label set of another, whose labels and namespace it shares."""
        self._number_of[shape] = self._number_of[other]

    def selected(self, selector: Selector | None, namespaces: Namespaces) -> int:
        """Return the label sets, as bits, that a selector selects in these namespaces. No selector selects nothing."""
        if selector is None:
            return 0
        key = selector.key, namespaces
        if key not in self._selected:
            members = self._everything if namespaces is None else self._within(namespaces)
            for requirement in selector.requirements.values():
                members &= self._meeting(requirement)
            self._selected[key] = members
        return self._selected[key]

    def counted(self, shape: Shape, selector: Selector | None, namespaces: Namespaces) -> int:
        """Return the label sets, as bits, of the pods that a spread or an affinity of a shape counts.

        Pods do not count room of CapacityBuffers: no pod runs there. Room counts pods, and other room.
        """
        selected = self.selected(selector, namespaces)
        return selected if shape.is_room else selected & ~self._room

    def selects(self, selector: Selector | None, namespaces: Namespaces, shape: Shape) -> bool:
        """Return whether a selector selects pods of a shape."""
        return self.selected(selector, namespaces) >> self._number_of[shape] & 1 == 1

    def _within(self, namespaces: frozenset[str]) -> int:
        return _union(self._namespaces.get(namespace, 0) for namespace in namespaces)

    def _meeting(self, requirement: Requirement) -> int:
        valued, labelled = self._valued[requirement.key], self._labelled[requirement.key]
        absent = self._everything & ~labelled if requirement.tolerates_absence else 0
        if requirement.gte is not None or requirement.lte is not None:
            return absent | _union(bits for value, bits in valued.items() if requirement.allows(value))
        matching = _union(valued.get(value, 0) for value in requirement.values)
        return absent | (labelled & ~matching if requirement.complement else matching)


def bits(numbers: int) -> Iterator[int]:
    """Yield the numbers in a set, ascending."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def selectors_of(shape: Shape) -> list[Selector]:
    """Return the selectors of all constraints of a shape."""
    selectors = [
        *(spread.selector for spread in shape.spreads),
        *(term.selector for term in shape.affinities),
    ]
    return [selector for selector in selectors if selector is not None]


def _union(sets: Iterable[int]) -> int:
    union = 0
    for members in sets:
        union |= members
    return union


UNLIMITED = 2**31
EVERYBODY = 0
"""The group of all pods."""
_EVERY_IP = frozenset({"0.0.0.0", "::"})  # noqa: S104 (read from pods, not bound)
_MOST_MEMBERSHIPS = 500_000
Cap = tuple[int, int]
HostPort = tuple[str, int, str]
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The groups that pods of a shape belong to, and their caps: (group, most pods of it on a node that holds them)."""

    groups: tuple[int, ...] = ()
    caps: tuple[Cap, ...] = ()

    @property
    def per_node(self) -> int:
        """How many of these pods alone one node may hold."""
        return min((most for group, most in self.caps if group in self.groups), default=UNLIMITED)


class PodConflicts:
    """The rules of all shapes that may meet on a node.

    A selector that would put too many shapes into too many groups gets no group of its own: pods with that rule get a
    node to themselves, which is stricter than they ask but never wrong.
    """

    def __init__(self, shapes: Iterable[Shape]) -> None:
        shapes = list(dict.fromkeys(shapes))
        self.sets = LabelSets(shapes)
        self._groups: dict[_Key, int] = {("everybody",): EVERYBODY}
        self._spread_groups: set[int] = set()
        self._too_broad: set[_Key] = set()
        self._rules: dict[tuple[Shape, bool], Rules] = {}
        self._members: list[list[int]] = [[] for _ in range(self.sets.count)]
        self._united: dict[Shape, tuple[Shape, ...]] = {}
        self._number_groups(shapes)

    def rules(self, shape: Shape, *, running: bool = False) -> Rules:
        """Return a shape's rules.

        The spreads of pods that already run (`running`) do not limit pods that come later.
        """
        key = shape, running
        if key not in self._rules:
            caps: dict[int, int] = {}
            groups = self._groups_of(shape)
            for group, most in self._caps(shape, groups, running=running):
                caps[group] = min(most, caps.get(group, most))
            self._rules[key] = Rules(tuple(sorted(groups)), tuple(sorted(caps.items())))
        return self._rules[key]

    def register_unit(self, whole: Shape, members: Sequence[Shape]) -> None:
        """Register the rules of a shape that stands for several pods which come to a node together.

        The unit counts as one pod of each group. Where several of its pods belong to one group, that group is capped at
        1, so no other pod of the group may share the node.
        """
        parts = [self.rules(member) for member in members]
        counts = Counter(group for part in parts for group in part.groups)
        caps: dict[int, int] = {group: 1 for group, count in counts.items() if count > 1}
        for group, most in (cap for part in parts for cap in part.caps):
            caps[group] = min(most, caps.get(group, most))
        self._united[whole] = tuple(dict.fromkeys(members))
        self._rules[whole, False] = Rules(tuple(sorted(counts)), tuple(sorted(caps.items())))

    def may_share(self, some: Sequence[Shape]) -> bool:
        """Return whether one node may hold these pods; a shape that occurs n times stands for n pods."""
        counts = Counter(group for shape in some for group in self.rules(shape).groups)
        return all(
            counts[group] <= most for shape in dict.fromkeys(some) for group, most in self.rules(shape).caps
        )

    def counts_leaving(self, group: int) -> bool:
        """Return whether pods being deleted still count in a group: for spreads they do not."""
        return group not in self._spread_groups

    def conflict(self, shape: Shape, other: Shape) -> bool:
        """Return whether host ports or anti-affinity keep all pods of one shape off a node with a pod of the other."""
        if shape in self._united:
            return any(self.conflict(member, other) for member in self._united[shape])
        collide = bool(shape.host_ports and other.host_ports) and ports_collide(
            shape.host_ports, other.host_ports
        )
        return collide or self._repels(shape, other) or self._repels(other, shape)

    def _repels(self, shape: Shape, other: Shape) -> bool:
        return any(
            is_hostname_anti_affinity(term) and self.sets.selects(term.selector, term.namespaces, other)
            for term in shape.affinities
        )

    def _number_groups(self, shapes: Iterable[Shape]) -> None:
        """Number the groups that some rule names, small ones first, and record the groups of every label set."""
        selected: dict[_Key, int] = {}
        for shape in shapes:
            for kind, selector, namespaces in _selections(shape):
                key: _Key = (kind, selector.key, namespaces)
                selected.setdefault(key, self.sets.selected(selector, namespaces))
        memberships = 0
        # Stable: in order of shapes.
        for named, members in sorted(selected.items(), key=lambda pair: pair[1].bit_count()):
            memberships += members.bit_count()
            if memberships > _MOST_MEMBERSHIPS:
                self._too_broad.add(named)
                continue
            group = self._number(named)
            if named[0] == "spread":
                self._spread_groups.add(group)
            for number in bits(members):
                self._members[number].append(group)

    def _number(self, key: _Key) -> int:
        return self._groups.setdefault(key, len(self._groups))

    def _groups_of(self, shape: Shape) -> set[int]:
        groups = set(self._members[self.sets.number(shape)])
        for ip, port, protocol in shape.host_ports:
            groups.add(self._number(("port", port, protocol)))
            groups.add(self._number(("port", port, protocol, ip)))
        if self._too_broad:
            groups.add(EVERYBODY)
        return groups

    def _caps(self, shape: Shape, groups: set[int], *, running: bool) -> Iterator[Cap]:
        for ip, port, protocol in shape.host_ports:
            on = ("port", port, protocol)
            yield self._number(on if ip in _EVERY_IP else (*on, ip)), 1
        for spread in shape.spreads:
            if (
                spread.topology_key == HOSTNAME
                and spread.hard
                and spread.selector is not None
                and not running
            ):
                yield self._cap(("spread", spread.selector.key, _own_namespace(shape)), spread.max_skew)
        for term in shape.affinities:
            if is_hostname_anti_affinity(term) and term.selector is not None:
                key = "anti", term.selector.key, term.namespaces
                yield self._cap(key, 1 if self._groups.get(key) in groups else 0)

    def _cap(self, key: _Key, most: int) -> Cap:
        return (EVERYBODY, 1) if key in self._too_broad else (self._groups[key], most)


def is_hostname_anti_affinity(term: PodAffinityTerm) -> bool:
    """Return whether a term is required anti-affinity over the hostname."""
    return term.anti and not term.weight and term.topology_key == HOSTNAME


def ports_collide(some: Iterable[HostPort], others: Sequence[HostPort]) -> bool:
    """Return whether two sets of host ports (ip, port, protocol) conflict on one node; 0.0.0.0 and :: mean every ip."""
    return any(
        (port, protocol) == (other_port, other_protocol)
        and (ip == other_ip or not _EVERY_IP.isdisjoint((ip, other_ip)))
        for ip, port, protocol in some
        for other_ip, other_port, other_protocol in others
    )


def _selections(shape: Shape) -> Iterator[tuple[str, Selector, Namespaces]]:
    """Yield what the rules of a shape select: kind of rule, selector, namespaces."""
    for spread in shape.spreads:
        if spread.topology_key == HOSTNAME and spread.hard and spread.selector is not None:
            yield "spread", spread.selector, _own_namespace(shape)
    for term in shape.affinities:
        if is_hostname_anti_affinity(term) and term.selector is not None:
            yield "anti", term.selector, term.namespaces


def _own_namespace(shape: Shape) -> frozenset[str]:
    return frozenset((shape.namespace,))
