"""Settings about commitments: whether they are read, from which accounts, and those that are listed by hand.

A commitment is listed by hand if the account that shares it cannot be read. Only what is written is checked here;
instance families are compared with the catalogue when the commitments are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import Problem, did_you_mean, shown, suggestion
from nodesmith.model.apimachinery.times import is_time, parse_time
from nodesmith.model.ledger.commitments import Commitment, CommitmentKind, family_of, quarter_units

_ROLE = re.compile(r"arn:[a-z-]+:iam::\d{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)
_KINDS = {
    "zonalReservedInstances": CommitmentKind.ZONAL,
    "regionalReservedInstances": CommitmentKind.REGIONAL,
    "ec2InstanceSavingsPlan": CommitmentKind.EC2_INSTANCE,
    "computeSavingsPlan": CommitmentKind.COMPUTE,
}
_FIELDS = {
    CommitmentKind.ZONAL: ("instanceType", "zone", "count"),
    CommitmentKind.REGIONAL: ("instanceType", "count"),
    CommitmentKind.EC2_INSTANCE: ("family", "hourly", "discount"),
    CommitmentKind.COMPUTE: ("hourly", "discount"),
}
_COMMON = ("kind", "ends", "currency")
_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+", re.ASCII)
_FAMILY = re.compile(r"[a-z0-9-]+", re.ASCII)
_OTHER_PLACE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+|[a-z]+\d+-az\d+", re.ASCII)
"""A region, or the id of a zone."""
KEYS = ("payerRoleArn", "share", "listed")
_KNOWN = ", ".join(KEYS)


@dataclass(frozen=True, slots=True)
class ListedCommitment:
    """A commitment as it is listed. `discount` is the share that a Savings Plan takes off on-demand prices."""

    name: str
    kind: CommitmentKind
    ends: datetime
    scope: str = ""
    zone: str = ""
    count: int = 0
    hourly_usd: float = 0.0
    discount: float = 0.0

    def commitment(self, prices: Mapping[str, float], vcpus: Mapping[str, int]) -> Commitment | Problem:
        """Return it with the rates that follow from on-demand prices by type, or what is wrong with its scope."""
        families = sorted({family_of(kind) for kind in prices})
        valid = families if self.kind is CommitmentKind.EC2_INSTANCE else sorted(prices)
        if self.scope and self.scope not in valid:
            field = "family" if self.kind is CommitmentKind.EC2_INSTANCE else "instanceType"
            hint = suggestion(self.scope, valid) or "write one of the region's"
            return Problem(self.name, field, repr(self.scope), hint)
        if not self.kind.is_plan:
            units = quarter_units(self.scope, vcpus.get(self.scope, 0))
            amount = self.count if self.kind is CommitmentKind.ZONAL else self.count * units
            return Commitment(self.name, self.kind, amount, self.ends, self.scope, self.zone, of_payer=True)
        rates = {
            kind: round(price * (1 - self.discount) * 1_000_000)
            for kind, price in prices.items()
            if self.scope in ("", family_of(kind))
        }
        amount, paid = int(self.hourly_usd * 1_000_000), self.hourly_usd
        about = self.name, self.kind, amount, self.ends, self.scope, "", FrozenMap(rates), paid, True
        return Commitment(*about)


@dataclass(frozen=True, slots=True)
class CommitmentSettings:
    """Where commitments are read. `share` is the part of each Compute Savings Plan that the region may count on."""

    payer_role_arn: str = ""
    share: float = 1.0
    listed: tuple[ListedCommitment, ...] = ()


def parse_commitment_settings(text: str) -> CommitmentSettings:
    """Read `true`, or a JSON object with some of KEYS. Raises ValueError with every fault."""
    value: Any = True if text.strip().lower() == "true" else json.loads(text)
    faults = list(setting_faults("commitments", value))
    if faults:
        raise ValueError("; ".join(faults))
    settings = {} if value is True else value
    listed, _ = parse_listed(settings.get("listed", ()))
    return CommitmentSettings(settings.get("payerRoleArn", ""), float(settings.get("share", 1.0)), listed)


def setting_faults(path: str, value: Any) -> Iterator[str]:
    """Yield the faults of a setting: where each is, what was found and what is expected."""
    if isinstance(value, bool):
        return
    if not isinstance(value, dict):
        yield f"{path}: expected true or an object with some of {', '.join(KEYS)}, found {value!r}"
        return
    for key in sorted(set(value) - set(KEYS)):
        yield f"{path}.{key}: unknown{did_you_mean(key, KEYS) or f'; known are {_KNOWN}'}"
    role, share = value.get("payerRoleArn", ""), value.get("share", 1.0)
    if role != "" and not (isinstance(role, str) and _ROLE.fullmatch(role)):
        yield f"{path}.payerRoleArn: expected the ARN of an IAM role, found {role!r}"
    if not _is_number(share) or not 0 < share <= 1:
        yield f"{path}.share: expected a number above 0 and at most 1, found {share!r}"
    for problem in parse_listed(value.get("listed", ()))[1]:
        yield f"{path}.listed: {problem}"


def parse_listed(
    entries: Any, now: datetime | None = None
) -> tuple[tuple[ListedCommitment, ...], tuple[Problem, ...]]:
    """Return the commitments in a list, and what is wrong with the others. With `now`, expired ones are wrong."""
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return (), (Problem("commitments", "list", shown(entries), "write a list of commitments"),)
    listed: list[ListedCommitment] = []
    problems: list[Problem] = []
    for number, entry in enumerate(entries):
        name = f"commitment {number + 1}"
        faults = list(_entry_problems(name, entry, now))
        problems += faults
        if not faults:
            listed.append(_listed(name, entry))
    return tuple(listed), tuple(problems)


def _entry_problems(name: str, entry: Any, now: datetime | None) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(name, "entry", shown(entry), "write an object")
        return
    kind = _KINDS.get(str(entry.get("kind")))
    if kind is None:
        hint = suggestion(str(entry.get("kind")), _KINDS)
        yield Problem(name, "kind", shown(entry.get("kind")), hint or f"write one of {', '.join(_KINDS)}")
        return
    fields = (*_COMMON, *_FIELDS[kind])
    for key in sorted(set(entry) - set(fields)):
        hint = suggestion(key, fields)
        yield Problem(name, key, shown(entry[key]), hint or f"a {kind} has {', '.join(fields)}")
    for key in _FIELDS[kind]:
        remedy = _remedy(key, entry.get(key))
        if remedy:
            yield Problem(name, key, shown(entry.get(key)), remedy)
    if entry.get("currency", "USD") != "USD":
        yield Problem(name, "currency", shown(entry["currency"]), "write it in USD, or leave it out")
    ends = entry.get("ends")
    if not isinstance(ends, str) or not is_time(ends):
        yield Problem(name, "ends", shown(ends), "write when it ends, such as 2027-06-30T00:00:00Z")
    elif now is not None and parse_time(ends) <= now:
        yield Problem(name, "ends", shown(ends), "it has expired: remove it", fatal=False)


def _remedy(key: str, value: Any) -> str:
    """Return how a field must be written; empty if it is."""
    match key:
        case "instanceType":
            right = isinstance(value, str) and _TYPE.fullmatch(value) is not None
            return "" if right else "write an instance type such as m5.large"
        case "family":
            right = isinstance(value, str) and _FAMILY.fullmatch(value) is not None
            return "" if right else "write an instance family such as m5"
        case "zone":
            right = isinstance(value, str) and value != "" and not _OTHER_PLACE.fullmatch(value)
            return "" if right else "write the name of a zone such as us-east-1a"
        case "count":
            right = isinstance(value, int) and not isinstance(value, bool) and value > 0
            return "" if right else "write the number of instances, at least 1"
        case "hourly":
            return "" if _is_number(value) and value > 0 else "write the hourly commitment in USD, above 0"
        case _:
            right = _is_number(value) and 0 < value < 1
            return "" if right else "write the discount on on-demand prices as a fraction, such as 0.28"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _listed(name: str, entry: Mapping[str, Any]) -> ListedCommitment:
    return ListedCommitment(
        name,
        _KINDS[entry["kind"]],
        parse_time(entry["ends"]),
        entry.get("instanceType") or entry.get("family") or "",
        entry.get("zone", ""),
        entry.get("count", 0),
        float(entry.get("hourly", 0.0)),
        float(entry.get("discount", 0.0)),
    )
