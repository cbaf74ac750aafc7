"""Allocate the devices of one node to the claims of a pod, as kube-scheduler's structured allocator does.

The search is depth first: request by request, alternative by alternative, device by device. Devices of one kind are
interchangeable, so it takes them in one order only. Of a shared device it takes shares of the capacity, and of a
partition the counters that it has in common with others. It is bounded by steps; a claim whose search takes more counts
as one that cannot be met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.quantities import parse_quantity
from nodesmith.model.kubernetes.devices import (
    ALL,
    DeviceKind,
    DeviceRequest,
    DeviceSelection,
    MatchAttribute,
    PodClaim,
    RequestPolicy,
    Stock,
    amount_of,
    contents,
    parse_policy,
    qualified,
)

_MOST_STEPS = 20_000
_MOST_STEPS_OF_DECISION = 500_000
_MOST_STEPS_OF_WANT, _MOST_STEPS_OF_SELECTORS = 100_000, 2_000_000
"""Of the evaluation of selectors: for one want with all kinds of devices, and for all wants of a decision."""
# One namespace may use up the steps of a decision. What remains to others suffices for common selectors and claims.
_STEPS_OF_ITS_OWN = 2_000
_STEPS_OF_CLAIMS = 500_000
"""Once a decision's steps are used up: what each selector has left, and what all different claims share equally."""
_MOST_COPIES = 128


class Matcher:
    """Which kinds of devices wants select. `errors` are why selectors fail, by DeviceClass and selectors.

    One is used for one decision, whose steps it counts: `left` are those that searches may still take, and
    `left_to_selectors` those of selectors. `different` is how many different claims it is about.
    """

    def __init__(self, classes: Mapping[str, Sequence[str]], different: int = 1) -> None:
        self.classes = classes
        self._own_steps = _STEPS_OF_CLAIMS // max(1, different)
        self._own: dict[tuple[object, ...], int] = {}
        self.errors: dict[tuple[str, tuple[str, ...]], str] = {}
        self.left = _MOST_STEPS_OF_DECISION
        self._left_of: dict[tuple[str, tuple[str, ...]], int] = {}
        self.left_to_selectors = _MOST_STEPS_OF_SELECTORS
        self._known: dict[tuple[object, ...], bool | None] = {}

    def granted(self, claims: Sequence[PodClaim]) -> int:
        """Return how many steps a search for these claims may take."""
        if self.left >= _MOST_STEPS:
            return _MOST_STEPS
        return min(_MOST_STEPS, max(self.left, self._own.get(contents(claims), self._own_steps)))

    def spend(self, claims: Sequence[PodClaim], steps: int) -> None:
        """Count the steps that a search for these claims took."""
        common = min(self.left, steps)
        self.left -= common
        if steps > common:
            key = contents(claims)
            self._own[key] = max(0, self._own.get(key, self._own_steps) - (steps - common))

    def selects(self, want: DeviceSelection, kind: DeviceKind) -> bool | None:
        """Return whether a want selects devices of a kind; None if a selector fails for them."""
        key = want.device_class, want.selectors, want.capacity, kind.selectable
        if key not in self._known:
            is_able = share(kind, want.capacity) is not None
            self._known[key] = None if (result := self._evaluated(want, kind)) is None else result and is_able
        return self._known[key]

    def selected(self, want: DeviceSelection, stock: Stock) -> list[int]:
        """Return the numbers of the kinds that a want selects.

        If a selector fails for any device of a node, kube-scheduler allocates no device of that node, so none is
        selected here.
        """
        verdicts = [self.selects(want, kind) for kind, _, _ in stock]
        return (
            [] if None in verdicts else [number for number, is_selected in enumerate(verdicts) if is_selected]
        )

    def _evaluated(self, want: DeviceSelection, kind: DeviceKind) -> bool | None:
        # Only clusters with pods that claim devices need these modules.
        from nodesmith.model.kubernetes.deviceselectors import Domains, Steps, parse_version, selects
        from nodesmith.model.kubernetes.selectorsyntax import SelectorError

        attributes, capacity = Domains(), Domains()
        device = {
            "driver": kind.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": kind.is_shared,
        }
        read = {"version": parse_version}
        key = want.device_class, want.selectors
        budget = self._left_of.get(key, _MOST_STEPS_OF_WANT)
        left_to_it = budget - _MOST_STEPS_OF_WANT + _STEPS_OF_ITS_OWN
        before = min(budget, max(self.left_to_selectors, left_to_it))
        steps = Steps(before)
        try:
            for name, value in kind.attributes.items():
                domain, _, short = name.rpartition("/")
                ((of, raw),) = value.items()
                attributes.setdefault(domain, {})[short] = read[of](raw) if of in read else raw
            for name, amount in kind.capacity.items():
                domain, _, short = name.rpartition("/")
                capacity.setdefault(domain, {})[short] = parse_quantity(amount)
            return all(
                selects(selector, device, steps)
                for selector in (*self.classes.get(want.device_class, ()), *want.selectors)
            )
        except SelectorError as error:
            self.errors.setdefault(key, str(error))
            return None
        finally:
            self._left_of[key] = budget - (before - steps.left)
            self.left_to_selectors = max(0, self.left_to_selectors - (before - steps.left))


@dataclass(frozen=True, slots=True)
class _Task:
    """One request of one claim, by the number of the claim."""

    number: int
    request: DeviceRequest
    constraints: tuple[MatchAttribute, ...]


@dataclass(frozen=True, slots=True)
class TakenDevice:
    """A device of a stock, by its row there, that is allocated to a request (`want` names its alternative) of a claim.

    `consumed` are the amounts that it takes of a shared device, in thousandths. `seat` is for the allocator.
    """

    claim: int
    request: str
    want: str
    row: int
    consumed: Mapping[str, int]
    slot: int


@dataclass(slots=True)
class _Slot:
    """Devices of one row of a stock: all that are alike, or one that claims share, with what is left of it."""

    kind: DeviceKind
    row: int
    total: int
    free: int
    users: int = 0
    left: dict[str, int] = field(default_factory=dict)


def _slots(stock: Stock) -> Iterator[_Slot]:
    for row, (kind, total, free) in enumerate(stock):
        if not kind.is_shared:
            yield _Slot(kind, row, total, free)
            continue
        remaining = {name: amount_of(text) - kind.used.get(name, 0) for name, text in kind.capacity.items()}
        for _ in range(total):
            yield _Slot(kind, row, 1, 1, int(bool(kind.used)), dict(remaining))


class Allocator:
    """The devices of one node, of which claims take some: `taken` are those that the last claims took."""

    def __init__(self, stock: Stock, matcher: Matcher) -> None:
        self._stock, self._matcher = stock, matcher
        self._slots = list(_slots(stock))
        self._counters = {name: left for kind, _, _ in stock for name, (left, _) in kind.counters.items()}
        self._left = 0
        self._selected: dict[DeviceSelection, list[int]] = {}
        self._open: dict[DeviceSelection, list[int]] = {}
        self._same: dict[tuple[int, MatchAttribute], tuple[object, int]] = {}
        """The value that each constraint has settled on, and how many devices have it."""
        self.taken: list[TakenDevice] = []

    @property
    def free(self) -> list[int]:
        """How many devices of each row nobody uses."""
        counts = [0] * len(self._stock)
        for slot in self._slots:
            counts[slot.row] += slot.free if not slot.kind.is_shared else int(not slot.users)
        return counts

    def allocate(self, claims: Sequence[PodClaim]) -> bool:
        """Allocate devices to all of these claims, and return whether that is possible. If not, nothing changes."""
        self._left = steps = self._matcher.granted(claims)
        self._same, self.taken = {}, []
        is_met = self._meets(list(_tasks(claims)), 0)
        self._matcher.spend(claims, steps - max(0, self._left))
        return is_met

    def _meets(self, tasks: Sequence[_Task], at: int) -> bool:
        """Return whether the devices left meet the tasks from `at` on; they are then taken."""
        if at == len(tasks):
            return True
        task = tasks[at]
        self._left -= 1
        for want in task.request.wants:
            if self._left < 0:
                return False
            if want.count == ALL:
                if self._all(tasks, at, want):
                    return True
            elif self._some(tasks, at, want, self._open_to(want), want.count):
                return True
        return False

    def _selected_by(self, want: DeviceSelection) -> list[int]:
        """Return the numbers of the seats that a want selects."""
        if want not in self._selected:
            rows = set(self._matcher.selected(want, self._stock))
            self._selected[want] = [number for number, slot in enumerate(self._slots) if slot.row in rows]
        return self._selected[want]

    def _open_to(self, want: DeviceSelection) -> list[int]:
        """Return the numbers of the seats that a want selects and that still have something.

        What was used up before these claims stays used up, so each of many claims looks at fewer seats.
        """
        if not self.taken:
            candidates = self._open[want] if want in self._open else self._selected_by(want)
            self._open[want] = [number for number in candidates if self._has(self._slots[number], want)]
        return self._open[want] if want in self._open else self._selected_by(want)

    def _some(
        self, tasks: Sequence[_Task], at: int, want: DeviceSelection, selected: Sequence[int], count: int
    ) -> bool:
        if not count:
            return self._meets(tasks, at + 1)
        for place, number in enumerate(selected):
            self._left -= 1
            if self._left < 0:
                return False
            if not self._take(tasks[at], want, number):
                continue
            if self._some(tasks, at, want, selected[place:], count - 1):
                return True
            self._give_back(tasks[at], want)
        return False

    def _all(self, tasks: Sequence[_Task], at: int, want: DeviceSelection) -> bool:
        """Take all selected devices of the node. It has at least one, and all of them must be free.

        A shared device that has too little left is not among them.
        """
        device_slots = [(number, self._slots[number]) for number in self._selected_by(want)]
        usable = [
            (number, slot)
            for number, slot in device_slots
            if not slot.kind.is_shared or self._has(slot, want)
        ]
        if not usable or any(slot.free < slot.total for _, slot in usable):
            return False
        numbers = [number for number, slot in usable for _ in range(slot.total)]
        used = 0
        for number in numbers:
            if not self._take(tasks[at], want, number):
                break
            used += 1
        if used == len(numbers) and self._meets(tasks, at + 1):
            return True
        for _ in range(used):
            self._give_back(tasks[at], want)
        return False

    def _has(self, slot: _Slot, want: DeviceSelection) -> bool:
        """Return whether a device is free, with enough of its capacity and of its counters."""
        consumed = self._share(slot, want)
        draws = {} if slot.users else slot.kind.consumes
        return (
            slot.free > 0
            and all(amount <= slot.left[name] for name, amount in consumed.items())
            and all(amount <= self._counters[name] for name, amount in draws.items())
        )

    def _share(self, slot: _Slot, want: DeviceSelection) -> Mapping[str, int]:
        """Return what a want takes of a device that claims share, empty for others."""
        return (share(slot.kind, want.capacity) or {}) if slot.kind.is_shared else {}

    def _take(self, task: _Task, want: DeviceSelection, number: int) -> bool:
        """Take one device for a request, if it is free, its counters suffice and no constraint is broken."""
        slot = self._slots[number]
        kind = slot.kind
        if not self._has(slot, want):
            return False
        covering = _covering(task, want)
        values = {constraint: (kind.value(constraint.attribute), 0) for constraint in covering}
        if any(
            value is None or self._same.get((task.number, constraint), (value, 0))[0] != value
            for constraint, (value, _) in values.items()
        ):
            return False
        for constraint, initial in values.items():
            value, many = self._same.get((task.number, constraint), initial)
            self._same[task.number, constraint] = value, many + 1
        consumed = self._share(slot, want)
        self._use(slot, consumed, -1)
        self.taken.append(TakenDevice(task.number, task.request.name, want.name, slot.row, consumed, number))
        return True

    def _use(self, slot: _Slot, consumed: Mapping[str, int], sign: int) -> None:
        """Take a device, with a sign of -1, or give it back. Its counters count for its first user only."""
        before = slot.users
        if slot.kind.is_shared:
            slot.users -= sign
            for name, amount in consumed.items():
                slot.left[name] += sign * amount
        else:
            slot.free += sign
        if not (before and slot.users):
            for name, amount in slot.kind.consumes.items():
                self._counters[name] += sign * amount

    def _give_back(self, task: _Task, want: DeviceSelection) -> None:
        """Give back the device that was taken last, which was for this request."""
        last = self.taken.pop()
        self._use(self._slots[last.slot], last.consumed, 1)
        for constraint in _covering(task, want):
            value, many = self._same.pop((task.number, constraint))
            if many > 1:
                self._same[task.number, constraint] = value, many - 1


def _covering(task: _Task, want: DeviceSelection) -> list[MatchAttribute]:
    return [constraint for constraint in task.constraints if constraint.covers(task.request.name, want.name)]


def _tasks(claims: Iterable[PodClaim]) -> Iterator[_Task]:
    for number, claim in enumerate(claims):
        for request in claim.requests:
            yield _Task(number, request, claim.constraints)


def copies(stock: Stock, claims: Sequence[PodClaim], matcher: Matcher) -> int:
    """Return for how many pods with such claims the free devices of a node are enough, one pod after the other."""
    allocator = Allocator(stock, matcher)
    return next((number for number in range(_MOST_COPIES) if not allocator.allocate(claims)), _MOST_COPIES)


_ANY = RequestPolicy()


def share(kind: DeviceKind, requested: Mapping[str, int]) -> dict[str, int] | None:
    """Return what a claim takes of each capacity of a device, used or not; None if the device cannot give that.

    `requested` has the amounts that a request names. kube-scheduler's rules, which Karpenter follows as well.
    """
    by_name = {qualified(name, kind.driver): amount for name, amount in requested.items()}
    if by_name.keys() - kind.capacity.keys():
        return None
    shares: dict[str, int] = {}
    for name, text in kind.capacity.items():
        policy = parse_policy(kind.policies[name]) if name in kind.policies else _ANY
        total = amount_of(text)
        default = total if policy.default is None else policy.default
        rounded = policy.rounded(by_name[name]) if name in by_name else default
        if rounded is None or rounded > total:
            return None
        shares[name] = rounded
    return shares
