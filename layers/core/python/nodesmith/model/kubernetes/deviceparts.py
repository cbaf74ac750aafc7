"""What claims take of devices that are divided: shares of their capacity; and the devices that annotations declare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.kubernetes.devices import DeviceKind, amount_of, parse_kind, qualified


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a claim may take: one of `values`, or from `least` to `most` in steps.

    `default` is for requests that do not name the capacity; without one they take all of it.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def rounded(self, asked: int) -> int | None:
        """Return how much a claim takes that asks for an amount; None if the policy has no such amount."""
        if self.values:
            return next((value for value in sorted(self.values) if asked <= value), None)
        if self.least is not None:
            steps = -(-max(0, asked - self.least) // self.step) * self.step if self.step else 0
            asked = self.least + steps if self.step else max(asked, self.least)
        return asked if self.most is None or asked <= self.most else None


@lru_cache(maxsize=1024)
def parse_policy(text: str) -> RequestPolicy:
    """Read a requestPolicy from JSON. Raises TypeError, AttributeError, ValueError or QuantityError."""
    policy = json.loads(text)
    valid = policy.get("validRange") or {}
    limits = (valid.get("min"), valid.get("max"), valid.get("step"))
    least, most, step = (None if each is None else amount_of(each) for each in limits)
    default = policy.get("default")
    values = tuple(map(amount_of, policy.get("validValues") or ()))
    return RequestPolicy(None if default is None else amount_of(default), values, least, most, step or None)


_ANY = RequestPolicy()


def share(kind: DeviceKind, asked: Mapping[str, int]) -> dict[str, int] | None:
    """Return what a claim takes of each capacity of a device, used or not; None if the device cannot give that.

    `asked` has the amounts that a request names. kube-scheduler's rules, which Karpenter follows as well.
    """
    named = {qualified(name, kind.driver): amount for name, amount in asked.items()}
    if named.keys() - kind.capacity.keys():
        return None
    found: dict[str, int] = {}
    for name, text in kind.capacity.items():
        policy = parse_policy(kind.policies[name]) if name in kind.policies else _ANY
        whole = amount_of(text)
        default = whole if policy.default is None else policy.default
        taken = policy.rounded(named[name]) if name in named else default
        if taken is None or taken > whole:
            return None
        found[name] = taken
    return found


_FIELDS = frozenset(
    {"driver", "count", "attributes", "capacity", "allowMultipleAllocations", "counters", "partitions"}
)
_FIELDS_OF_PARTITION = frozenset({"count", "attributes", "capacity", "consumes"})
_MOST_OF_DRIVER, _MOST_KINDS = 128, 512


def parse_annotated(entries: object) -> tuple[tuple[DeviceKind, int], ...]:
    """Read the devices that an annotation declares: kinds, each with how many there are.

    Raises ValueError that names the entry, what was found and what would be right.
    """
    if not isinstance(entries, list) or not entries:
        raise ValueError('must be a list such as [{"driver": "gpu.example.com", "count": 8}]')
    found: dict[DeviceKind, int] = {}
    for number, entry in enumerate(entries):
        at = f"[{number}]"
        count = _checked(entry, at, _FIELDS)
        if not isinstance(entry.get("driver"), str) or not entry["driver"]:
            raise ValueError(f"{at}.driver: must name the driver, such as gpu.example.com")
        try:
            for kind, many in _kinds(entry, count, at):
                found[kind] = found.get(kind, 0) + many
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(str(error) if str(error).startswith(at) else f"{at}: {error}") from None
        if len(found) > _MOST_KINDS:
            raise ValueError(f"{at}: at most {_MOST_KINDS} different partitions are simulated")
    return tuple(found.items())


def _checked(entry: object, at: str, fields: frozenset[str]) -> int:
    """Return the count of an entry."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{at}: found {str(entry)[:64]!r}: must be a map with {min(fields, key=len)}")
    odd = sorted(entry.keys() - fields)
    if odd:
        hint = did_you_mean(odd[0], fields) or f", must be one of {', '.join(sorted(fields))}"
        raise ValueError(f"{at}.{str(odd[0])[:64]} is unknown{hint}")
    count = entry.get("count", 1)
    if type(count) is not int or not 1 <= count <= _MOST_OF_DRIVER:
        raise ValueError(f"{at}.count: found {str(count)[:64]!r}: must be 1 to {_MOST_OF_DRIVER}")
    return count


def _kinds(entry: Mapping[str, Any], count: int, at: str) -> Iterator[tuple[DeviceKind, int]]:
    """Yield the kinds of an entry. Each of `count` devices with counters has its own, which its partitions consume."""
    driver, counters, partitions = entry["driver"], entry.get("counters"), entry.get("partitions")
    if counters is None and partitions is None:
        yield _kind(entry, driver), count
        return
    if counters is None or partitions is None:
        raise ValueError(f"{at}: counters and partitions must be set together")
    if not isinstance(partitions, list) or not partitions:
        raise ValueError(f"{at}.partitions: must be a list of maps with consumes")
    budget = {str(name): amount_of(total) for name, total in counters.items()}
    for number, part in enumerate(partitions):
        where = f"{at}.partitions[{number}]"
        many = _checked(part, where, _FIELDS_OF_PARTITION)
        consumes = {str(name): amount_of(amount) for name, amount in (part.get("consumes") or {}).items()}
        if not consumes or consumes.keys() - budget.keys():
            known = ", ".join(sorted(budget))
            raise ValueError(f"{where}.consumes: must name amounts of the entry's counters: {known}")
        kind = _kind(part, driver)
        for device in range(count):
            prefix = f"{driver}/{at}/{device}/"
            taken = {prefix + name: amount for name, amount in consumes.items()}
            totals = {prefix + name: (budget[name], budget[name]) for name in consumes}
            yield replace(kind, consumes=FrozenMap(taken), counters=FrozenMap(totals)), many


def _kind(entry: Mapping[str, Any], driver: str) -> DeviceKind:
    return parse_kind({"driver": driver, **described(entry)})


def described(device: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes, capacity and what is shared of a device of a ResourceSlice, as `parse_kind` reads it.

    A capacity is a quantity, or an object with `value` and `requestPolicy` as in the API. Raises like `parse_policy`.
    """
    capacity, policies = {}, {}
    for name, given in (device.get("capacity") or {}).items():
        is_object = isinstance(given, Mapping)
        capacity[name] = str(given["value"] if is_object else given)
        if is_object and given.get("requestPolicy"):
            policies[name] = json.dumps(given["requestPolicy"], sort_keys=True, separators=(",", ":"))
            parse_policy(policies[name])
    shared = {"shared": True, "policies": policies} if device.get("allowMultipleAllocations") else {}
    return {"attributes": device.get("attributes") or {}, "capacity": capacity, **shared}
