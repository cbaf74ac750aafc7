"""SpendingLimits: limits in US dollars over the nodes of one cluster, of several together, or of the account.

Each is an SSM parameter, for example `/nodesmith/limits/team-red`:

    {"format": 1, "clusters": ["web", "batch"], "selector": {"matchLabels": {"example.com/team": "red"}},
     "usdPerHour": "40", "usdPerMonth": "20000"}

Without `clusters`, all registered clusters of the region count together. One without clusters and selector may also
have `launchesPerHour`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodesmith.model.apimachinery.labels import DECIDED, NODECLASS, NODEPOOL
from nodesmith.model.apimachinery.problems import Report, at, shown, suggestion
from nodesmith.model.apimachinery.quantities import NODES, Resources
from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Operator,
    Requirement,
    Requirements,
    contradiction,
)
from nodesmith.model.limits.quotas import KEYS_BY_RESOURCE, SPENDING_LIMIT, Quota, selected
from nodesmith.model.policies import (
    LIMIT_PARAMETERS,
    MOST_LAUNCHES,
    USD_PER_HOUR,
    USD_PER_MONTH,
    read_usd,
    read_usd_of_month,
)

LIMIT_FORMAT = 1
LIMIT_KEYS = ("format", "clusters", "selector", "usdPerHour", "usdPerMonth", "launchesPerHour")
_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_OF_EXPRESSIONS = ("key", "operator", "values")
OF_NODEPOOLS = frozenset({NODEPOOL, NODECLASS})
"""Labels that a NodePool decides although they are well-known."""
_READERS = {USD_PER_HOUR: read_usd, USD_PER_MONTH: read_usd_of_month}


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """A limit over nodes of these clusters together, of all registered ones if there are none.

    `launches` is the most launches an hour of the whole account; None for its default.
    """

    name: str
    quota: Quota
    clusters: tuple[str, ...] = ()
    launches: int | None = None

    @property
    def key(self) -> str:
        """The key under which clusters report their use of it. It changes with the nodes that the limit selects."""
        identity = json.dumps([self.clusters, _selector_item(self.quota.requirements)])
        return f"{self.name}:{zlib.crc32(identity.encode()):08x}"

    def covers(self, cluster: str) -> bool:
        """Return whether it applies to a cluster."""
        return not self.clusters or cluster in self.clusters

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        quota = self.quota
        return {
            "name": self.name,
            "clusters": list(self.clusters),
            "selector": _selector_item(quota.requirements),
            "limits": dict(sorted(quota.limits.items())),
            "fault": quota.fault,
            "remedy": quota.remedy,
            **({"launches": self.launches} if self.launches is not None else {}),
        }

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> SpendingLimit:
        """Read what `to_item` writes."""
        parts = (
            Requirement(key, frozenset(values), complement=complement, exists=exists)
            for key, values, complement, exists in item["selector"]
        )
        quota = Quota(
            f"{SPENDING_LIMIT} {item['name']}",
            Requirements.of(*parts),
            Resources({str(name): int(amount) for name, amount in item["limits"].items()}),
            item["fault"],
            item["remedy"],
        )
        return cls(item["name"], quota, tuple(item["clusters"]), item.get("launches"))


def _selector_item(requirements: Requirements) -> list[list[Any]]:
    parts = (requirements[key] for key in sorted(requirements))
    return [[part.key, sorted(part.values), part.complement, part.exists] for part in parts]


def parse_spending_limit(name: str, text: str) -> SpendingLimit:
    """Read the value of a parameter. Never raises: what cannot be read allows nothing that the rest may select."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raw = text
    return read_spending_limit(name, raw)[0]


def read_spending_limit(name: str, raw: Any) -> tuple[SpendingLimit, tuple[str, ...]]:
    """Return a SpendingLimit and its faults: which field, what was found, and what would be right."""
    report = Report(f"{SPENDING_LIMIT}/{name}")
    owner, spec = f"{SPENDING_LIMIT} {name}", raw if isinstance(raw, Mapping) else {}
    if not isinstance(raw, Mapping):
        report.add("value", shown(raw), f"must be a JSON object with some of {', '.join(LIMIT_KEYS)}")
    elif spec.get("format") != LIMIT_FORMAT:
        report.add("format", shown(spec.get("format")), f"must be {LIMIT_FORMAT}")
    for key in sorted(set(map(str, spec)) - set(LIMIT_KEYS)):
        hint = suggestion(key, LIMIT_KEYS)
        report.add(key, "an unknown field", hint or f"use {', '.join(LIMIT_KEYS)}")
    parts = list(selected(_checked_selector(spec.get("selector"), report), report, "selector"))
    limits = dict(_dollars(spec, parts, report))
    clusters, launches = _clusters(spec.get("clusters"), report), _launches(spec, report)
    if not limits and launches is None and not report.problems:
        report.add("value", "no limit", "give usdPerHour, usdPerMonth or launchesPerHour")
    problems = report.problems
    clash = contradiction(parts)
    quota = Quota(owner, NO_REQUIREMENTS if clash else Requirements.of(*parts), Resources(limits))
    if problems:
        first_problem = problems[0]
        source = f"{first_problem.field} of SSM parameter {LIMIT_PARAMETERS}/{name}"
        quota = replace(
            quota,
            limits=Resources({NODES: 0}),
            fault=f"{source} is {first_problem.found}",
            remedy=first_problem.remedy,
        )
    faults = tuple(f"{problem.field}: found {problem.found}: {problem.remedy}" for problem in problems)
    return SpendingLimit(name, quota, clusters, launches), faults


def _checked_selector(selector: object, report: Report) -> object:
    """Return a selector after reporting what is not one."""
    types = {"matchLabels": dict, "matchExpressions": list}
    if selector is not None and not isinstance(selector, Mapping):
        report.add("selector", shown(selector), "must be an object with matchLabels or matchExpressions")
    for key, value in (selector if isinstance(selector, Mapping) else {}).items():
        if key not in types or not isinstance(value, types[key]):
            report.add(at("selector", str(key)), shown(value), "must be matchLabels or matchExpressions")
    labels = selector.get("matchLabels") if isinstance(selector, Mapping) else None
    for key, value in (labels if isinstance(labels, Mapping) else {}).items():
        if not isinstance(value, str):
            report.add(at("selector.matchLabels", str(key)), shown(value), "must be text")
    expressions = selector.get("matchExpressions") if isinstance(selector, Mapping) else None
    for number, expression in enumerate(expressions if isinstance(expressions, list) else ()):
        _check_expression(expression, f"selector.matchExpressions[{number}]", report)
    return selector


def _check_expression(expression: object, path: str, report: Report) -> None:
    """Report an expression that `selected` would leave out, so that the limit would select more than was meant."""
    if (
        not isinstance(expression, Mapping)
        or expression.get("operator") not in _OPERATORS
        or not _is_text(expression.get("key"))
    ):
        report.add(path, shown(expression), f"must have a key and an operator: {', '.join(_OPERATORS)}")
        return
    for key in sorted(set(map(str, expression)) - set(_OF_EXPRESSIONS)):
        hint = suggestion(key, _OF_EXPRESSIONS)
        report.add(at(path, key), "an unknown field", hint or f"use {', '.join(_OF_EXPRESSIONS)}")
    values = expression.get("values")
    if values is not None and not (isinstance(values, list) and all(isinstance(v, str) for v in values)):
        report.add(at(path, "values"), shown(values), "must be a list of texts")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _dollars(spec: Mapping[str, Any], parts: list[Requirement], report: Report) -> Iterator[tuple[str, int]]:
    for resource, read in _READERS.items():
        key = KEYS_BY_RESOURCE[resource]
        value = spec.get(key)
        if value is None:
            continue
        decided = sorted({part.key for part in parts} & DECIDED - OF_NODEPOOLS)
        if resource == USD_PER_MONTH and decided:
            report.add(key, f"a limit over {decided[0]}", "select labels of NodePools, or limit usdPerHour")
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise ValueError("must be a number of US dollars, such as 5 or 12.50")
            yield resource, read(str(value))
        except ValueError as error:
            report.add(key, shown(value), str(error))


def _clusters(value: object, report: Report) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return tuple(sorted(set(value)))
    report.add("clusters", shown(value), "must be a list of names of EKS clusters; without it, all count")
    return ()


def _launches(spec: Mapping[str, Any], report: Report) -> int | None:
    value = spec.get("launchesPerHour")
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MOST_LAUNCHES:
        report.add("launchesPerHour", shown(value), f"must be a whole number from 1 to {MOST_LAUNCHES}")
        return None
    if spec.get("clusters") or spec.get("selector"):
        remedy = "only a limit without clusters and selector has it; of a cluster, set LAUNCHES_PER_HOUR"
        report.add("launchesPerHour", "a limit of launches over some nodes", remedy)
        return None
    return value
