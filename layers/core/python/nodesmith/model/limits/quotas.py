"""Quotas: limits over sets of nodes that are selected by labels. All that select a node apply to it.

There are four sources: CapacityQuotas (an API of Cluster Autoscaler's group), the limits in US dollars that a NodePool
has as annotations, the limits of a whole cluster in its registration, and SpendingLimits in SSM Parameter Store, which
also apply to several clusters together. Amounts of money are whole numbers in the units that `nodesmith.model.policies`
defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.problems import Parsed, ParseOnce, Report, at, shown, suggestion
from nodesmith.model.apimachinery.quantities import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NODES,
    NOTHING,
    QuantityError,
    Resources,
    format_amount,
    parse_amount,
)
from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Operator,
    Requirement,
    Requirements,
    contradiction,
    requirement,
)
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_HOUR, LIMIT_USD_PER_MONTH, NodePool
from nodesmith.model.policies import (
    LAUNCHES_PER_HOUR,
    LIMIT_PARAMETERS,
    LIMITED,
    MICRO,
    MONTHLY,
    USD_PER_HOUR,
    USD_PER_MONTH,
    is_limited,
    micro_usd_of,
)
from nodesmith.model.schema.fields import Array, Kind, Map, Object, Quantity, Text
from nodesmith.model.schema.reading import read_manifest

_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
CAPACITY_QUOTA = Kind(
    "autoscaling.x-k8s.io",
    "CapacityQuota",
    "capacityquotas",
    Object(
        {
            "selector": Object(
                {
                    "matchLabels": Map(Text()),
                    "matchExpressions": Array(
                        Object(
                            {
                                "key": Text(min_length=1),
                                "operator": Text(enum=tuple(each.value for each in _OPERATORS)),
                                "values": Array(Text()),
                            },
                            required=("key", "operator"),
                        )
                    ),
                }
            ),
            "limits": Object({"resources": Map(Quantity())}, required=("resources",)),
        },
        required=("limits",),
    ),
    version="v1beta1",
)
_OLD_API_VERSION = f"{CAPACITY_QUOTA.group}/v1alpha1"
CLUSTER, ACCOUNT = "the cluster", "the account"
SPENDING_LIMIT = "SpendingLimit"
_IN_WORDS = {
    NODES: "nodes",
    USD_PER_HOUR: "USD an hour",
    USD_PER_MONTH: "USD a month",
    LAUNCHES_PER_HOUR: "launches an hour",
}
KEYS_BY_RESOURCE = {
    USD_PER_HOUR: "usdPerHour",
    USD_PER_MONTH: "usdPerMonth",
    LAUNCHES_PER_HOUR: "launchesPerHour",
    NODES: "the value",
}
"""What a SpendingLimit calls what it limits."""
_ANNOTATIONS = {USD_PER_HOUR: LIMIT_USD_PER_HOUR, USD_PER_MONTH: LIMIT_USD_PER_MONTH}


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit over the nodes whose labels meet `requirements`.

    `owner` names its source in messages: `CapacityQuota gold`, `NodePool web`, `SpendingLimit red`, `the cluster` or
    `the account`. With a `fault`, the source cannot be read: until it can, no node is bought that it may select.
    `remedy` is then what would be right.
    """

    owner: str
    requirements: Requirements = NO_REQUIREMENTS
    limits: Resources = NOTHING
    fault: str = ""
    remedy: str = ""

    def field(self, resource: str) -> str:
        """Return what to change to raise the limit of a resource."""
        kind, _, name = self.owner.partition(" ")
        if self.owner == CLUSTER and resource == LAUNCHES_PER_HOUR:
            return "LAUNCHES_PER_HOUR of the cluster's registration"
        if self.owner == CLUSTER:
            return f"{resource} in CLUSTER_LIMITS of the cluster's registration"
        if self.owner == ACCOUNT:
            return f"launchesPerHour of a SpendingLimit without clusters and selector, in {LIMIT_PARAMETERS}"
        if kind == SPENDING_LIMIT:
            return f"{KEYS_BY_RESOURCE[resource]} of SSM parameter {LIMIT_PARAMETERS}/{name}"
        if kind == "NodePool":
            return f"annotation {_ANNOTATIONS[resource]} of {self.owner}"
        return f"{at('spec.limits.resources', resource)} of {self.owner}"


def is_quota(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is a CapacityQuota, whatever its version."""
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return (group, manifest.get("kind")) == (CAPACITY_QUOTA.group, CAPACITY_QUOTA.name)


def parse_quota(manifest: Mapping[str, object]) -> Parsed[Quota]:
    """Read a CapacityQuota and report all of its problems. There is a value even so. Never raises.

    The valid parts of a selector remain: together they select at least the nodes that the whole was meant for.
    """
    today = {**manifest, "apiVersion": CAPACITY_QUOTA.api_version}
    read = read_manifest(
        CAPACITY_QUOTA, today if manifest.get("apiVersion") == _OLD_API_VERSION else manifest
    )
    name = str(read.metadata.get("name") or "(unnamed)")
    raw = manifest.get("spec")
    spec: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    parts = list(selected(spec.get("selector"), read.report))
    limits = dict(_limits(spec.get("limits"), read.report))
    clash = contradiction(parts)
    if clash:
        read.report.add("spec.selector", f"contradictory about {clash}", "no node has such labels")
    fatal = next((problem for problem in read.report.problems if problem.fatal), None)
    requirements = NO_REQUIREMENTS if clash else Requirements.of(*parts)
    owner = f"{CAPACITY_QUOTA.name} {name}"
    if fatal is None:
        return Parsed(Quota(owner, requirements, Resources(limits)), read.report.problems)
    fault = f"{fatal.field} is {fatal.found}"
    refusing = Quota(owner, requirements, Resources({NODES: 0}), fault, fatal.remedy)
    return Parsed(refusing, read.report.problems)


parse_quotas = ParseOnce(parse_quota)


def quotas_of(
    manifests: tuple[Mapping[str, object], ...],
    nodepools: Iterable[NodePool],
    cluster_limits: Iterable[tuple[str, int]],
) -> tuple[Quota, ...]:
    """Return all quotas: the cluster's, those of NodePools in dollars, and CapacityQuotas."""
    cluster_resources = Resources(dict(cluster_limits))
    return (
        *((Quota(CLUSTER, limits=cluster_resources),) if cluster_resources else ()),
        *(quota for pool in nodepools if (quota := of_nodepool(pool)) is not None),
        *(result.value for result in parse_quotas(manifests) if result.value is not None),
    )


def of_nodepool(pool: NodePool) -> Quota | None:
    """Return the quota in dollars of a NodePool, None if it has none."""
    limits, (fault, remedy) = pool.options.limits_usd, pool.options.limit_fault
    if not limits and not fault:
        return None
    mine = Requirements.from_labels({NODEPOOL: pool.name})
    if fault:
        return Quota(f"NodePool {pool.name}", mine, Resources({NODES: 0}), fault, remedy)
    return Quota(f"NodePool {pool.name}", mine, Resources(dict(limits)))


def selected(selector: object, report: Report, path: str = "spec.selector") -> Iterator[Requirement]:
    """Yield the parts of a label selector that can be read. Report only what a schema cannot check."""
    if not isinstance(selector, Mapping):
        return
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    for key, value in (labels if isinstance(labels, Mapping) else {}).items():
        if isinstance(key, str) and isinstance(value, str):
            yield requirement(key, Operator.IN, (value,))
    for number, expression in enumerate(expressions if isinstance(expressions, list) else ()):
        if not isinstance(expression, Mapping):
            continue
        key, operator, values = (
            expression.get("key"),
            expression.get("operator"),
            expression.get("values") or [],
        )
        if not isinstance(key, str) or operator not in _OPERATORS or not isinstance(values, list):
            continue
        if (operator in {Operator.IN, Operator.NOT_IN}) != bool(values):
            needs = "needs at least one value" if not values else "takes no values"
            field = f"{path}.matchExpressions[{number}].values"
            report.add(field, shown(values), f"{operator} {needs}")
            continue
        yield requirement(key, str(operator), map(str, values))


def _limits(limits: object, report: Report) -> Iterator[tuple[str, int]]:
    """Yield the limits that can be read, in the unit of each resource."""
    resources = limits.get("resources") if isinstance(limits, Mapping) else None
    if resources == {}:
        remedy = f"limits nothing: name at least one of {', '.join(LIMITED)}, or delete the CapacityQuota"
        report.add("spec.limits.resources", "empty", remedy, fatal=False)
    for name, value in (resources if isinstance(resources, Mapping) else {}).items():
        path = at("spec.limits.resources", name)
        if name == USD_PER_MONTH:
            remedy = f"use the annotation {LIMIT_USD_PER_MONTH} of NodePools, or a SpendingLimit"
            report.add(path, "a limit over a month", remedy)
            continue
        if not isinstance(name, str) or not is_limited(name):
            hint = suggestion(str(name), LIMITED)
            report.add(
                path,
                "an unknown resource",
                hint or f"use {', '.join(LIMITED)}, or another name with a domain",
            )
            continue
        try:
            yield name, micro_usd_of(value) if name == USD_PER_HOUR else parse_amount(name, value)
        except QuantityError:
            continue


def amount_in_words(resource: str, amount: int) -> str:
    """Return an amount with its unit, such as `3 nodes`, `12 cpu`, `64Gi memory` or `4.8 USD an hour`.

    Dollars a month are rounded up to cents.
    """
    if resource == USD_PER_HOUR:
        number = f"{amount / MICRO:.6f}".rstrip("0").rstrip(".")
    elif resource == USD_PER_MONTH:
        cents = -(-amount * 100 // MONTHLY)
        number = f"{cents // 100}.{cents % 100:02}".rstrip("0").rstrip(".")
    elif resource == CPU:
        number = f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    else:
        number = _short_bytes(resource, amount)
    return _ONE.get((resource, amount), f"{number} {_IN_WORDS.get(resource, resource)}")


_ONE = {(NODES, 1): "1 node", (LAUNCHES_PER_HOUR, 1): "1 launch an hour"}


def used_in_words(resource: str, used: int, limit: int) -> str:
    """Return how much of a limit is used: `3 of 4 nodes`."""
    return f"{amount_in_words(resource, used).partition(' ')[0]} of {amount_in_words(resource, limit)}"


_MANY_BYTES = 10 * 2**30


def _short_bytes(resource: str, amount: int) -> str:
    is_large = resource in {MEMORY, EPHEMERAL_STORAGE} and amount >= _MANY_BYTES
    return format_amount(resource, amount // 2**30 * 2**30 if is_large else amount)


def format_limits(resources: Resources) -> dict[str, str]:
    """Write amounts as in a CapacityQuota's status: dollars as a decimal number."""
    return {
        name: amount_in_words(name, resources[name]).partition(" ")[0]
        if name in _ANNOTATIONS
        else format_amount(name, resources[name])
        for name in sorted(resources)
    }
