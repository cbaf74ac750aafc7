"""Allocate the devices of one node to the claims of a pod, as kube-scheduler's structured allocator does.

The search is depth first: request by request, alternative by alternative, device by device. Devices of one kind are
interchangeable, so it takes them in one order only. It is bounded by steps; a claim whose search takes more counts as
one that cannot be met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodesmith.model.apimachinery.quantities import parse_quantity
from nodesmith.model.kubernetes.devices import ALL, Alike, DeviceKind, DeviceRequest, PodClaim, Stock, Want

_MOST_STEPS = 20_000
_MOST_STEPS_OF_DECISION = 1_000_000
_MOST_STEPS_OF_WANT, _MOST_STEPS_OF_SELECTORS = 100_000, 2_000_000
"""Of the evaluation of selectors: for one want with all kinds of devices, and for all wants of a decision."""
_MOST_COPIES = 64


class Matcher:
    """Which kinds of devices wants select. `errors` are why selectors fail, by DeviceClass and selectors.

    One is used for one decision, whose steps it counts: `left` are those that searches may still take.
    """

    def __init__(self, classes: Mapping[str, Sequence[str]]) -> None:
        self.classes = classes
        self.errors: dict[tuple[str, tuple[str, ...]], str] = {}
        self.left = _MOST_STEPS_OF_DECISION
        self._left_of: dict[tuple[str, tuple[str, ...]], int] = {}
        self._all_left = _MOST_STEPS_OF_SELECTORS
        self._known: dict[tuple[str, tuple[str, ...], DeviceKind], bool | None] = {}

    def selects(self, want: Want, kind: DeviceKind) -> bool | None:
        """Return whether a want selects devices of a kind; None if a selector fails for them."""
        key = want.device_class, want.selectors, kind
        if key not in self._known:
            self._known[key] = self._evaluated(want, kind)
        return self._known[key]

    def selected(self, want: Want, stock: Stock) -> list[int]:
        """Return the numbers of the kinds that a want selects.

        If a selector fails for any device of a node, kube-scheduler allocates none of that node's, and so none is here.
        """
        found = [self.selects(want, kind) for kind, _, _ in stock]
        return [] if None in found else [number for number, is_selected in enumerate(found) if is_selected]

    def _evaluated(self, want: Want, kind: DeviceKind) -> bool | None:
        # Only clusters with pods that claim devices need these modules.
        from nodesmith.model.kubernetes.deviceselectors import Domains, Steps, parse_version, selects
        from nodesmith.model.kubernetes.selectorsyntax import SelectorError

        attributes, capacity = Domains(), Domains()
        device = {"driver": kind.driver, "attributes": attributes, "capacity": capacity}
        read = {"version": parse_version}
        key = want.device_class, want.selectors
        before = min(self._all_left, self._left_of.get(key, _MOST_STEPS_OF_WANT))
        steps = Steps(before)
        try:
            for name, value in kind.attributes.items():
                domain, _, short = name.rpartition("/")
                ((of, held),) = value.items()
                attributes.setdefault(domain, {})[short] = read[of](held) if of in read else held
            for name, amount in kind.capacity.items():
                domain, _, short = name.rpartition("/")
                capacity.setdefault(domain, {})[short] = parse_quantity(amount)
            return all(
                selects(each, device, steps)
                for each in (*self.classes.get(want.device_class, ()), *want.selectors)
            )
        except SelectorError as error:
            self.errors.setdefault(key, str(error))
            return None
        finally:
            self._left_of[key] = steps.left
            self._all_left -= before - steps.left


@dataclass(frozen=True, slots=True)
class _Task:
    """One request of one claim, by the number of the claim."""

    number: int
    request: DeviceRequest
    constraints: tuple[Alike, ...]


class _Search:
    def __init__(self, stock: Stock, matcher: Matcher) -> None:
        self.free = [free for _, _, free in stock]
        self._stock, self._matcher, self._left = stock, matcher, min(_MOST_STEPS, matcher.left)
        self._steps = self._left
        self._same: dict[tuple[int, Alike], tuple[object, int]] = {}
        """The value that each constraint has settled on, and how many devices have it."""

    @property
    def taken(self) -> int:
        return self._steps - max(0, self._left)

    def meets(self, tasks: Sequence[_Task], at: int = 0) -> bool:
        """Return whether the devices left meet the tasks from `at` on; `free` is then what they leave."""
        if at == len(tasks):
            return True
        task = tasks[at]
        self._left -= 1
        for want in task.request.wants:
            if self._left < 0:
                return False
            selected = self._matcher.selected(want, self._stock)
            picked = [each for each in task.constraints if each.covers(task.request.name, want.name)]
            if want.count == ALL:
                if self._all(tasks, at, selected, picked):
                    return True
            elif self._some(tasks, at, selected, picked, want.count):
                return True
        return False

    def _some(
        self,
        tasks: Sequence[_Task],
        at: int,
        selected: Sequence[int],
        constraints: Sequence[Alike],
        count: int,
    ) -> bool:
        if not count:
            return self.meets(tasks, at + 1)
        for place, kind in enumerate(selected):
            self._left -= 1
            if self._left < 0:
                return False
            if not self.free[kind] or not self._take(tasks[at].number, kind, constraints):
                continue
            if self._some(tasks, at, selected[place:], constraints, count - 1):
                return True
            self._give_back(tasks[at].number, kind, constraints)
        return False

    def _all(
        self, tasks: Sequence[_Task], at: int, selected: Sequence[int], constraints: Sequence[Alike]
    ) -> bool:
        """Take all selected devices of the node. It has at least one, and all of them must be free."""
        kinds = [kind for kind in selected for _ in range(self._stock[kind][1])]
        if not kinds or any(self.free[kind] < self._stock[kind][1] for kind in selected):
            return False
        taken: list[int] = []
        for kind in kinds:
            if not self._take(tasks[at].number, kind, constraints):
                break
            taken.append(kind)
        if len(taken) == len(kinds) and self.meets(tasks, at + 1):
            return True
        for kind in reversed(taken):
            self._give_back(tasks[at].number, kind, constraints)
        return False

    def _take(self, claim: int, kind: int, constraints: Sequence[Alike]) -> bool:
        device = self._stock[kind][0]
        for each in constraints:
            value = device.value(each.attribute)
            if value is None or self._same.get((claim, each), (value, 0))[0] != value:
                return False
        for each in constraints:
            value, number = self._same.get((claim, each), (device.value(each.attribute), 0))
            self._same[claim, each] = value, number + 1
        self.free[kind] -= 1
        return True

    def _give_back(self, claim: int, kind: int, constraints: Sequence[Alike]) -> None:
        self.free[kind] += 1
        for each in constraints:
            value, number = self._same.pop((claim, each))
            if number > 1:
                self._same[claim, each] = value, number - 1


def _tasks(claims: Iterable[PodClaim]) -> Iterator[_Task]:
    for number, claim in enumerate(claims):
        for request in claim.requests:
            yield _Task(number, request, claim.constraints)


def allocated(stock: Stock, claims: Sequence[PodClaim], matcher: Matcher) -> Stock | None:
    """Return what is left of the devices of a node after all of these claims are met; None if they cannot be met."""
    search = _Search(stock, matcher)
    is_met = search.meets(list(_tasks(claims)))
    matcher.left -= search.taken
    if not is_met:
        return None
    return tuple((kind, total, left) for (kind, total, _), left in zip(stock, search.free, strict=True))


def copies(stock: Stock, claims: Sequence[PodClaim], matcher: Matcher) -> int:
    """Return for how many pods with such claims the free devices of a node are enough, one pod after the other."""
    for number in range(_MOST_COPIES):
        left = allocated(stock, claims, matcher)
        if left is None:
            return number
        stock = left
    return _MOST_COPIES
