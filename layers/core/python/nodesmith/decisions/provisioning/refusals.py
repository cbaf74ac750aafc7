"""What keeps one NodePool from buying for a demand: the first filter that leaves nothing, and what failed there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodesmith.decisions.provisioning.nodepools.remedies import exclusions, of_obstacle, unknown_value
from nodesmith.decisions.provisioning.nodepools.tiers import Obstructed
from nodesmith.decisions.provisioning.purchase.order import Filter, Refusal
from nodesmith.decisions.scheduling.compatibility import (
    NO_IMAGE,
    image_conflict,
    types_for_pods,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.launchable import Admission, is_sold_out, keeps_off
from nodesmith.decisions.scheduling.offerings.options import TypeOption, limit_cost
from nodesmith.decisions.scheduling.offerings.quotas import obstacle
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import (
    described_group,
    is_group_full,
    own_limits,
    used_up,
)
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.frozen import NO_ITEMS
from nodesmith.model.apimachinery.labels import DECIDED, NODEPOOL, OS, WELL_KNOWN, ZONE, restriction
from nodesmith.model.apimachinery.problems import did_you_mean, suggestion
from nodesmith.model.apimachinery.quantities import (
    EPHEMERAL_STORAGE,
    Resources,
    amount_text,
    amounts_text,
    rounded_down_text,
    rounded_up_text,
)
from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Conflict,
    Requirement,
    Requirements,
)
from nodesmith.model.ec2.capacity import ACCELERATOR_RESOURCES, EFA
from nodesmith.model.karpenter.nodeoverlays import DEVICES_ANNOTATION
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.kubernetes.devices import DEVICES, without_devices
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.status import MOST_SPREAD

_LARGER_DISKS = "give the EC2NodeClass larger blockDeviceMappings (or instanceStorePolicy RAID0)"
_DECLARED = (
    f"allow instance types with these devices, or declare theirs: {DEVICES_ANNOTATION} on a NodeOverlay"
)
_DIGITS = re.compile(r"\d")


_WINDOWS = Refusal(
    Filter.REQUIREMENT,
    "its nodes run Windows, and nothing about the pods says that they do",
    "operating system",
    "if they are Windows pods, give them the node selector kubernetes.io/os: windows",
)
_ONE_INTERFACE = Refusal(
    Filter.RESOURCE,
    "its EC2NodeClass has associatePublicIPAddress true, which EC2 allows with a single network interface only, and"
    f" the pods ask for more {EFA} than such nodes have",
    f"resource {EFA}",
    "remove associatePublicIPAddress, and reach the internet through a NAT gateway",
)
_MOST_TOGETHER = 4
_REFUSED_LATELY = "EC2 lately refused all instance types"
_FOR_LACK = "for lack of capacity, quota or permission"
_SOLD_OUT = Refusal(
    Filter.OFFERING,
    f"{_REFUSED_LATELY} that are large enough, {_FOR_LACK}",
    "offerings",
    "wait, allow more instance types, zones or capacity types, or raise the quota",
)


def refusal(demand: Demand, template: Template) -> Refusal:
    """Return why a NodePool that may buy now cannot buy for a demand."""
    shape = demand.shape
    rooms = [choice.room for choice in template.choices]
    general = _absent(shape, rooms) or _unfit(shape, template.pool, template.requirements)
    if general is not None:
        return (_unknown_value(shape, template) if general.filter is Filter.REQUIREMENT else None) or general
    if keeps_off(template, shape):
        return _WINDOWS
    admission = Admission(template, (demand,))
    is_known = _unknown_value(shape, template) is None
    choices = template.choices if is_known else ()
    admitted = [choice for choice in choices if any(admission.mask(choice, o) for o in choice.offerings)]
    if not admitted:
        return _nothing_admitted(demand, template, admission, is_known=is_known)
    fitting = [c for c in admitted if demand.shape.requests.fits_in(c.room)]
    if not fitting:
        sold_out = is_sold_out(demand, template, admitted)
        return _SOLD_OUT if sold_out else _too_large(demand, admitted, template)
    plain = [c for c in fitting if not c.is_exotic] or fitting
    if template.trial and template.remaining.of(NODES) < 1:
        return Refusal(Filter.NODEPOOL, template.trial, f"NodePool {template.name}")
    own = own_limits(template.remaining).items()
    within = [c for c in plain if all(limit_cost(c, None, n) <= left for n, left in own)]
    if within and not is_group_full(template.remaining):
        offers = [(c, o) for c in within for o in c.offerings if admission.mask(c, o)]
        limit = obstacle(template, offers) or used_up((o for _, o in offers), template.reservations)
        if limit is not None:
            return Refusal(Filter.LIMIT, *limit)
        text = "a node would serve it, but all pods were too much work for one run: the next run continues"
        return Refusal(Filter.UNFINISHED, text, "amount of work")
    return _over_limits(demand, plain, template)


def _unknown_value(shape: Shape, template: Template) -> Refusal | None:
    """Return the refusal of pods that select what no instance type of the region has; None if they do not."""
    requirements = shape.terms[0] if shape.terms and len(shape.terms) == 1 else NO_REQUIREMENTS
    exclusions_by_key = (
        unknown_value(requirements[key], template) for key in sorted(requirements) if key != OS
    )
    exclusion = next(filter(None, exclusions_by_key), None)
    if exclusion is None:
        return None
    return Refusal(
        Filter.REQUIREMENT, exclusion.reason, f"requirement {exclusion.requirement}", exclusion.fix
    )


def of_obstructed(demand: Demand, name: str, obstacle_text: str, nodepool: Obstructed | None) -> Refusal:
    """Return why a NodePool that may not buy now does not serve a demand; `obstacle_text` is the obstacle.

    It is near if nothing but the obstacle keeps it from the pods, unless it is static: its obstacle never goes away.
    """
    shape, fix = demand.shape, of_obstacle(obstacle_text)
    if nodepool is None:
        return Refusal(Filter.NODEPOOL, obstacle_text, f"NodePool {name}", fix)
    if nodepool.pool.is_static:
        unfit = _unfit(shape, nodepool.pool, nodepool.requirements)
        return Refusal(unfit.filter if unfit else Filter.NODEPOOL, obstacle_text, f"NodePool {name}", fix)
    rooms = [kind.allocatable for kind in nodepool.types.types]
    unfit = (_absent(shape, rooms) if rooms else None) or _unfit(shape, nodepool.pool, nodepool.requirements)
    if unfit is not None:
        return unfit
    own_labels = frozenset(nodepool.pool.labels)
    types = [kind for term in shape.terms for kind in types_for_pods(nodepool.types, term, own_labels).types]
    fits = any(shape.requests.fits_in(kind.allocatable) for kind in types)
    passed = Filter.OBSTRUCTED if fits else Filter.NODEPOOL
    return Refusal(passed, obstacle_text, f"NodePool {name}", fix)


def _absent(shape: Shape, rooms: Sequence[Resources]) -> Refusal | None:
    """Return the refusal of a NodePool without any node that has a resource of some kind; None if all have amounts."""
    lacking = (
        _no_such(Filter.ABSENT, name, amount)
        for name, amount in sorted(shape.requests.items())
        if amount > 0 and "/" in name and not name.startswith((DEVICES, EFA))
        if not any(room.of(name) for room in rooms)
    )
    return next(lacking, None)


def _no_such(filter_: Filter, name: str, amount: int) -> Refusal:
    text = f"one pod asks for {amount_text(name, amount)} {name}, and no node offers any"
    if name in ACCELERATOR_RESOURCES or name.startswith("vpc.amazonaws.com/"):
        fix = f"allow instance types with {name}"
    else:
        hint = suggestion(name, ACCELERATOR_RESOURCES)
        fix = hint or "no instance type of EC2 has it: correct the name, or declare it on a NodeOverlay"
    return Refusal(filter_, text, f"resource {name}", fix)


def _unfit(shape: Shape, pool: NodePool, requirements: Requirements) -> Refusal | None:
    """Return why no node of a NodePool is for such pods, whatever its type; None if one may be."""
    own = [_own_labels(term) for term in shape.terms]
    conflicts = [c for term in own if (c := requirements.conflict(term)) is not None]
    if conflicts and len(conflicts) == len(own):
        return _conflict(conflicts[0], pool, Filter.LABEL)
    taints = [str(taint) for taint in pool.taints if shape.untolerated((taint,))]
    if taints:
        noun, remedy = ("taint", "a toleration") if len(taints) == 1 else ("taints", "tolerations")
        listed = " and ".join(taints)
        return Refusal(
            Filter.TAINT,
            f"pods do not tolerate the {noun} {listed}",
            f"taint {taints[0]}",
            f"add {remedy} for {listed} to the pods",
        )
    conflicts = [c for term in shape.terms if (c := requirements.conflict(term)) is not None]
    return _conflict(conflicts[0], pool, Filter.REQUIREMENT) if len(conflicts) == len(shape.terms) else None


def _own_labels(term: Requirements) -> Requirements:
    """Return the requirements on labels that users define, which say best which NodePool is meant."""
    return Requirements({key: r for key, r in term.items() if key == NODEPOOL or key not in WELL_KNOWN})


def _conflict(conflict: Conflict, pool: NodePool, filter_: Filter) -> Refusal:
    requirement = conflict.wanted
    if restriction(requirement.key) is not None:
        fix = f"remove {requirement.key} from the pods: no NodePool can give it to new nodes"
    elif conflict.offered is None:
        fix = f"add the label {requirement.key} to NodePool {pool.name}, or remove it from the pods"
    else:
        fix = conflict.remedy or f"allow {requirement} in NodePool {pool.name}"
        fix += _misspelt(requirement, conflict.offered)
    return Refusal(filter_, str(conflict), f"requirement {requirement}", fix)


def _misspelt(wanted: Requirement, offered: Requirement) -> str:
    """Return the offered value of a user's own label that pods may mean; empty if it differs in digits alone.

    Names such as `team-1` and `team-2` are alike without a mistake.
    """
    is_own = wanted.key == NODEPOOL or wanted.key not in WELL_KNOWN
    if not is_own or wanted.complement or offered.complement or not wanted.values:
        return ""
    value = min(wanted.values)
    return did_you_mean(value, [v for v in offered.values if _DIGITS.sub("", v) != _DIGITS.sub("", value)])


def _nothing_admitted(demand: Demand, template: Template, admission: Admission, *, is_known: bool) -> Refusal:
    """Return why none of the NodePool's offerings is for the pods; `is_known` if types have what they select."""
    if admission.port_holders:
        owner = admission.port_holders[0].owner
        text = f"{owner} uses the pods' host port on every suitable node"
        return Refusal(Filter.HOST_PORT, text, f"host port of {owner}", "use another host port")
    images = template.status.images
    terms = demand.shape.terms if is_known else ()
    mismatches = [image_conflict(images, term.union(template.requirements)) for term in terms]
    if mismatches and all(mismatches):
        text, fix = f"{NO_IMAGE}: {mismatches[0]}", of_obstacle(NO_IMAGE)
        return Refusal(Filter.OFFERING, text, "images of the EC2NodeClass", fix)
    impossible = exclusions(demand.shape, template)
    if impossible:
        text = "; and ".join(exclusion.reason for exclusion in impossible)
        fix = "; and ".join(dict.fromkeys(exclusion.fix for exclusion in impossible if exclusion.fix))
        return Refusal(Filter.OFFERING, text, f"requirement {impossible[0].requirement}", fix)
    if is_sold_out(demand, template, ()):
        return replace(
            _SOLD_OUT, reason=f"{_REFUSED_LATELY} that the pods select{_where(demand)}, {_FOR_LACK}"
        )
    culprit = next(_excluding_requirements(demand, template), None)
    return Refusal(
        Filter.OFFERING,
        f"no instance type with an offering left{_where(demand)} has what the pods select{_together(demand)}"
        f"{_shifted(demand, template)}",
        f"requirement {culprit}" if culprit else "offerings",
        f"remove {culprit} from the pods"
        if culprit
        else "allow more instance types, zones or capacity types",
    )


def _excluding_requirements(demand: Demand, template: Template) -> Iterator[Requirement]:
    """Yield the requirements of the pods, by key, without which something could be bought."""
    for term in demand.shape.terms:
        for key in sorted(term):
            less = Requirements({k: r for k, r in term.items() if k != key})
            freed = replace(demand, shape=replace(demand.shape, terms=(less,)))
            if key == ZONE:
                freed = replace(freed, pins=NO_ITEMS)
            admission = Admission(template, (freed,))
            if any(admission.mask(c, o) for c in template.choices for o in c.offerings):
                yield term[key]


def _where(demand: Demand) -> str:
    """Return the zones that the pods must be in by their spread, selectors or volumes; empty if zones do not matter."""
    if demand.zone:
        return f" in {demand.zone}"
    zones: set[str] = set()
    for requirement in (term.get(ZONE) for term in demand.shape.terms):
        if requirement is None or requirement.complement:
            return ""
        zones |= requirement.values
    return f" in {' or '.join(sorted(zones))}"


def _together(demand: Demand) -> str:
    """Return several requirements of the pods that no instance type meets at once; empty if there are not several."""
    requirements = [
        str(term[key]) for term in demand.shape.terms[:1] for key in sorted(term) if key in DECIDED
    ]
    if len(requirements) <= 1:
        return ""
    shown, others = requirements[:_MOST_TOGETHER], len(requirements) - _MOST_TOGETHER
    if others > 0:
        shown.append(f"and {others} more")
    return f" together ({'; '.join(shown)})"


def _shifted(demand: Demand, template: Template) -> str:
    """Return the zonal shifts of the zones that the pods must be in; empty if there are none."""
    zones = _where(demand).removeprefix(" in ").split(" or ")
    shifts = [shift for shift in template.shifted if shift.split()[1] in zones]
    return f": {'; '.join(shifts)}" if shifts else ""


def _too_large(demand: Demand, admitted: Sequence[TypeOption], template: Template) -> Refusal:
    requests = demand.shape.requests
    lacking = [n for n in sorted(requests) if requests[n] > max(c.room.of(n) for c in admitted)]
    if not lacking:
        requested = ", ".join(filter(None, (amounts_text(without_devices(requests)), demand.shape.devices)))
        text = f"no instance type offers all that one pod asks for ({requested}) at once"
        fix = "allow larger instance types, or ask for less"
        return Refusal(Filter.RESOURCE, text, "resources together", fix)
    name = lacking[0]
    if name.startswith(DEVICES):
        text = f"one pod claims {demand.shape.devices}, and no node that it allows has as many such devices"
        return Refusal(Filter.RESOURCE, text, "devices", _DECLARED)
    if name == EFA and template.nodeclass.associate_public_ip_address:
        return _ONE_INTERFACE
    if not any(c.room.of(name) for c in admitted):
        return _no_such(Filter.RESOURCE, name, requests[name])
    largest = max(admitted, key=lambda c: (c.room.of(name), c.type.name))
    most = rounded_down_text(name, max(0, largest.room.of(name)))
    text = (
        f"one pod asks for {amount_text(name, requests[name])} {name}, the most that a node offers to pods is"
        f" {most} ({largest.type.name}){_beside_daemons(largest, name)}"
    )
    more = _LARGER_DISKS if name == EPHEMERAL_STORAGE else f"allow instance types with more {name}"
    fix = f"{more}, or ask for at most {most}"
    return Refusal(Filter.RESOURCE, text, f"resource {name}", fix)


def _beside_daemons(largest: TypeOption, name: str) -> str:
    taken = largest.daemons.of(name)
    return f" besides the {amount_text(name, taken)} that its DaemonSets take" if taken else ""


def _over_limits(demand: Demand, plain: Sequence[TypeOption], template: Template) -> Refusal:
    """Name the limits that stop even one node, and values that would be enough for all pods of the demand."""
    if is_group_full(template.remaining):
        group = described_group(template.status.placement_group)
        text = f"{group} takes no more instances: EC2 allows {MOST_SPREAD} in a zone"
        return Refusal(Filter.LIMIT, text, group, "use another placement group, or more zones")
    template = replace(template, remaining=own_limits(template.remaining))
    limits, left = template.pool.limits, template.remaining
    smallest = {name: min(limit_cost(c, None, name) for c in plain) for name in sorted(left)}
    stops = {
        name: f"its limit of {amount_text(name, limits.of(name))} {name} is reached"
        f" ({amount_text(name, limits.of(name) - left[name])} used, the smallest suitable node takes"
        f" {amount_text(name, amount)})"
        for name, amount in smallest.items()
        if amount > left[name]
    }
    text = (
        " and ".join(stops.values())
        or f"its limits leave no room for a suitable node ({amounts_text(left)} left)"
    )
    raised = [f"spec.limits.{name} to at least {amount}" for name, amount in _enough(demand, plain, template)]
    pods = "this pod" if len(demand.pods) == 1 else f"these {len(demand.pods)} pods"
    fix = f"for {pods} raise {' and '.join(raised)}" if raised else ""
    blocking = f"limit {next(iter(stops))}" if stops else "limits together"
    return Refusal(Filter.LIMIT, text, blocking, fix)


def _enough(demand: Demand, choices: Sequence[TypeOption], template: Template) -> list[tuple[str, str]]:
    """Return the limits to raise, and to what, so that all pods fit on nodes of one type.

    It is the type for which the fewest limits must be raised, and by the least; of equals, the cheapest for the pods.
    """
    requests, left = demand.shape.requests, template.remaining

    def nodes(type_option: TypeOption) -> int:
        return -(-len(demand.pods) // max(1, requests.times_in(type_option.room, demand.per_node)))

    def needed(type_option: TypeOption) -> dict[str, int]:
        number = nodes(type_option)
        amounts = {name: number * limit_cost(type_option, None, name) for name in sorted(left)}
        return {name: amount for name, amount in amounts.items() if amount > left[name]}

    def effort(type_option: TypeOption) -> tuple[int, list[tuple[str, int]], float, str]:
        raised, price = needed(type_option), type_option.offerings[0].price_hourly_usd
        return len(raised), list(raised.items()), nodes(type_option) * price, type_option.type.name

    return [
        (name, rounded_up_text(name, template.pool.limits.of(name) - left[name] + amount))
        for name, amount in needed(min(choices, key=effort)).items()
    ]
