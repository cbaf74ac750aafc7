"""Validation shared by all instance type file formats: field checks and priced offerings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPES
from nodesmith.model.apimachinery.problems import Problem, did_you_mean
from nodesmith.model.ec2.catalog import Offering

ARCHITECTURES = ("amd64", "arm64")
_OTHER_SPELLINGS = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Statement:
    """One entry of a file, with the list that collects its problems."""

    position: str
    """label of an entry without a name: `instance type 3`"""
    entry: Mapping[str, Any]
    problems: list[Problem]

    def report(self, field: str, found: object, remedy: str) -> None:
        """Report a problem with a field."""
        shown = "missing" if found is None else repr(found)[:_SHOWN]
        self.problems.append(Problem(self._name(), field, shown, remedy))

    def text(self, field: str) -> str | None:
        """Return a field that must be a non-empty string, or report it."""
        value = self.entry.get(field)
        if isinstance(value, str) and value:
            return value
        self.report(field, value, "write a non-empty string")
        return None

    def arch(self, field: str) -> str | None:
        """Return an architecture by its Kubernetes name, or report it."""
        value = self.entry.get(field)
        if value in ARCHITECTURES:
            return str(value)
        likely = _OTHER_SPELLINGS.get(str(value).lower())
        hint = f"did you mean {likely!r}?" if likely else f"write one of {', '.join(ARCHITECTURES)}"
        self.report(field, value, hint)
        return None

    def mapping(self, field: str) -> Mapping[str, Any] | None:
        """Return a field that must be an object, or report it."""
        value = self.entry.get(field)
        if isinstance(value, dict):
            return value
        self.report(field, value, "write an object of names and values")
        return None

    def offers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the offerings with their paths. Report those that are not objects."""
        found = self.entry.get("offerings")
        if not isinstance(found, list):
            self.report("offerings", found, "write a list of offerings")
            return
        for position, offer in enumerate(found):
            if isinstance(offer, dict):
                yield f"offerings[{position}]", offer
            else:
                self.report(f"offerings[{position}]", offer, "write an object")

    def price(self, field: str, value: object) -> float | None:
        """Return an hourly price, or report it. Zero is invalid because it would always win."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.report(field, value, "write the hourly price as a positive number, such as 0.096")
        return None

    def capacity_type(self, field: str, value: object) -> str | None:
        """Return a capacity type that Karpenter knows, or report it."""
        if value in CAPACITY_TYPES:
            return str(value)
        hint = did_you_mean(str(value), CAPACITY_TYPES).removeprefix(", ")
        self.report(field, value, hint or f"write one of {', '.join(CAPACITY_TYPES)}")
        return None

    def unique(self, offerings: Iterator[tuple[str, Offering]]) -> Iterator[Offering]:
        """Yield the offerings. Omit and report duplicates of a zone and capacity type."""
        seen = set()
        for path, offering in offerings:
            if (offering.zone, offering.capacity_type) in seen:
                again = f"{offering.capacity_type} in {offering.zone}"
                self.report(path, again, "duplicates an earlier offering, which is kept; remove one")
                continue
            seen.add((offering.zone, offering.capacity_type))
            yield offering

    def _name(self) -> str:
        name = self.entry.get("name")
        return f"InstanceType/{name}" if isinstance(name, str) and name else self.position
