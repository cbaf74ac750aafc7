"""Read shapes, with their affinity and spread constraints, from reduced manifests (see `nodesmith.observation`).

A manifest that cannot be read still yields a shape, whose `refusal` describes the problem, so that one bad pod does not
affect others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.labels import (
    HOSTNAME,
    LONGEST_LABEL_VALUE,
    NODEPOOL,
    PROVISIONER_NAME,
    Toleration,
    is_label_value,
    normalised,
    restriction,
)
from nodesmith.model.apimachinery.quantities import QuantityError, parse_resources
from nodesmith.model.apimachinery.requirements import (
    Requirement,
    Requirements,
    Selector,
    contradiction,
    parse_selector,
    requirement,
)
from nodesmith.model.apimachinery.times import LONGEST_SECONDS
from nodesmith.model.kubernetes.devices import UNKNOWN_DEVICES, parse_claim
from nodesmith.model.kubernetes.pods import (
    CONTRADICT,
    CRITICAL_CLASSES,
    DEFAULT_GRACE_SECONDS,
    OPTED_OUT,
    Manifest,
    PodAffinityTerm,
    Shape,
    Spread,
    pod_requests,
)

MOST_SPREADS = 64
"""The time of a decision grows with the square of their number, of which the API server accepts thousands."""
_ASKED_FOR = frozenset({HOSTNAME, PROVISIONER_NAME})
"""Keys that pods may constrain but NodePools may not set."""


def parse_shape(manifest: Manifest, namespaces: Namespaces | None = None) -> Shape:
    """Read a reduced pod manifest. User errors do not raise, but are reported in `Shape.refusal`.

    `namespaces` are those of the cluster, None if unknown.
    """
    metadata = manifest.get("metadata") or {}
    namespace = str(metadata.get("namespace") or "default")
    labels = {str(k): str(v) for k, v in (metadata.get("labels") or {}).items()}
    owner = _owner(metadata.get("ownerReferences") or ())
    try:
        return _parse(namespace, labels, owner, manifest, namespaces)
    except QuantityError as error:
        refusal = f"a resource quantity cannot be read: {error}"
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        refusal = f"the pod's spec cannot be read: {error}"
    return Shape(namespace, labels, owner, refusal=refusal)


def _parse(
    namespace: str,
    labels: Mapping[str, str],
    owner: str,
    manifest: Manifest,
    namespaces: Namespaces | None,
) -> Shape:
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    affinity = spec.get("affinity") or {}
    own_terms, refusal = _terms(spec.get("nodeSelector") or {}, affinity.get("nodeAffinity") or {})
    terms, unreachable = _reaching(own_terms, spec)
    affinities = tuple(read_pod_affinity(affinity, namespace, labels, namespaces))
    spreads = tuple(read_spread(s, labels) for s in spec.get("topologySpreadConstraints") or ())
    return Shape(
        namespace=namespace,
        labels=labels,
        owner=owner,
        requests=pod_requests(spec, status.get("containerStatuses") or ())
        + parse_resources(spec.get("attachments")),
        terms=terms,
        own_terms=own_terms,
        tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or ()),
        spreads=spreads,
        affinities=affinities,
        preferred_terms=_preferred_terms(affinity.get("nodeAffinity") or {}),
        host_ports=_host_ports(spec),
        priority=int(spec.get("priority") or 0),
        grace_seconds=_grace_seconds(spec.get("terminationGracePeriodSeconds")),
        critical=spec.get("priorityClassName") in CRITICAL_CLASSES,
        annotations=dict(metadata.get("annotations") or {}),
        claims=tuple(map(parse_claim, spec.get("deviceClaims") or ())),
        gates=tuple(str(gate.get("name")) for gate in spec.get("schedulingGates") or ()),
        refusal=refusal
        or unreachable
        or _claiming(spec)
        or _overspread(spreads)
        or at_odds(affinities, namespace, labels),
    )


def _owner(references: Sequence[Manifest]) -> str:
    controller = next((r for r in references if r.get("controller")), None)
    return f"{controller.get('kind')}/{controller.get('name') or ''}" if controller else ""


def _terms(selector: Mapping[str, str], affinity: Manifest) -> tuple[tuple[Requirements, ...], str]:
    """Return the alternative terms, each including the node selector, and why they are refused, empty if not."""
    base = Requirements.from_labels({str(k): str(v) for k, v in selector.items()})
    required = affinity.get(REQUIRED) or {}
    raw_terms: list[Manifest] = list(required.get("nodeSelectorTerms") or [{}])
    if any(term.get("matchFields") for term in raw_terms):
        return (base,), "required node affinity by matchFields names a node, but no new node has that name"
    requirement_lists = [[*base.values(), *_expressions(term)] for term in raw_terms]
    clashes = [contradiction(parts) for parts in requirement_lists]
    if all(clashes):
        return (base,), f"its node selector and affinity {CONTRADICT} {clashes[0]!r}"
    terms = tuple(
        Requirements.of(*parts) for parts, clash in zip(requirement_lists, clashes, strict=True) if not clash
    )
    return terms, _restricted(terms, "node selector or affinity")


def _preferred_terms(affinity: Manifest) -> tuple[tuple[int, Requirements], ...]:
    """Return preferred node affinity, without terms that have no expressions or that no node can satisfy."""
    read = [
        (read_weight(preference), _expressions(_by_hostname(preference.get("preference") or {})))
        for preference in affinity.get(PREFERRED) or ()
    ]
    possible = ((weight, Requirements.of(*parts)) for weight, parts in read if not contradiction(parts))
    return tuple((weight, term) for weight, term in possible if term and not _restricted((term,), ""))


def _by_hostname(term: Manifest) -> Manifest:
    """Return a term with its matchFields, which only support metadata.name, as expressions on the hostname."""
    by_name = [{**field, "key": HOSTNAME} for field in term.get("matchFields") or ()]
    return {"matchExpressions": [*(term.get("matchExpressions") or ()), *by_name]}


def _reaching(own_terms: tuple[Requirements, ...], spec: Manifest) -> tuple[tuple[Requirements, ...], str]:
    """Return the terms narrowed to where the pod's volumes are reachable, and why they are refused, empty if not."""
    if spec.get("volumes"):
        return (
            own_terms,
            "the snapshot lacks the node affinity of its volumes: update the forwarder to the functions' release",
        )
    if "volumeNodeAffinity" not in spec:
        return own_terms, ""
    alternatives = ({"matchExpressions": term} for term in spec["volumeNodeAffinity"])
    volumes = [Requirements.of(*_expressions(term)) for term in alternatives]
    combinations = [
        (term, volume_term, term.conflict(volume_term, undefined=frozenset(volume_term)))
        for term in own_terms
        for volume_term in volumes
    ]
    combined = tuple(term.union(there) for term, there, conflict in combinations if conflict is None)
    if combinations and not combined:
        _, _, conflict = combinations[0]
        return own_terms, f"its volumes are out of reach of its node selector or affinity: {conflict}"
    return combined, _restricted(combined, "node affinity of its volumes")


def _restricted(terms: tuple[Requirements, ...], subject: str) -> str:
    for term in terms:
        for key in (NODEPOOL, PROVISIONER_NAME):
            if key in term and term[key].is_empty:
                return f"{OPTED_OUT}: the pod requires that {key} does not exist"
        for key in sorted(term):
            reason = restriction(key) if key not in _ASKED_FOR else None
            if reason:
                return f"{subject} on {key!r}: {reason}"
            # A required value becomes a label of the node, and labels are written into the node's user data.
            odd = [] if term[key].complement else [v for v in term[key].values if not is_label_value(v)]
            if odd:
                value = min(odd)[:LONGEST_LABEL_VALUE]
                return f"{subject} on {key!r}: no label can have the value {value!r}"
    return ""


def _claiming(spec: Manifest) -> str:
    """Return why nothing is bought for a pod whose claims to devices are not in the snapshot, empty for other pods."""
    if not spec.get("resourceClaims") or spec.get("deviceClaims"):
        return ""
    return UNKNOWN_DEVICES


def _overspread(spreads: Sequence[Spread]) -> str:
    """Return why nothing is bought for a pod with too many spreads, empty for other pods."""
    required = sum(spread.hard for spread in spreads)
    if required <= MOST_SPREADS:
        return ""
    return f"it has {required} topology spread constraints that must hold, and at most {MOST_SPREADS} are simulated"


def _expressions(term: Manifest) -> list[Requirement]:
    return [
        requirement(str(e.get("key")), str(e.get("operator")), map(str, e.get("values") or ()))
        for e in term.get("matchExpressions") or ()
    ]


def _grace_seconds(value: object) -> int:
    # The API server accepts any int64, with which no moment can be calculated.
    return DEFAULT_GRACE_SECONDS if value is None else min(max(0, int(str(value))), LONGEST_SECONDS)


def _toleration(raw: Manifest) -> Toleration:
    return Toleration(
        key=str(raw.get("key") or ""),
        operator=str(raw.get("operator") or "Equal"),
        value=str(raw.get("value") or ""),
        effect=str(raw.get("effect") or ""),
    )


def _host_ports(spec: Manifest) -> tuple[tuple[str, int, str], ...]:
    """Return the host ports of containers and sidecars, which run as long as the pod (kube-scheduler: NodePorts)."""
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    ports = (
        port for entry in (*(spec.get("containers") or ()), *sidecars) for port in entry.get("ports") or ()
    )
    return tuple(
        sorted(
            (str(p.get("hostIP") or "0.0.0.0"), int(p["hostPort"]), str(p.get("protocol") or "TCP"))  # noqa: S104
            for p in ports
            if p.get("hostPort")
        )
    )


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HEAVIEST = 100


def read_spread(raw: Manifest, labels: Mapping[str, str]) -> Spread:
    """Read one topology spread constraint of a pod with these labels. Raises KeyError or ValueError."""
    keys = raw.get("matchLabelKeys") or ()
    return Spread(
        topology_key=normalised(str(raw["topologyKey"])),
        max_skew=max(1, int(raw.get("maxSkew") or 1)),
        hard=raw.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        selector=parse_selector(raw.get("labelSelector"), {k: labels[k] for k in keys if k in labels}),
        min_domains=int(raw.get("minDomains") or 1),
        honor_affinity=raw.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=raw.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


@dataclass(frozen=True, slots=True)
class _PodIdentity:
    namespace: str
    labels: Mapping[str, str]
    namespaces: Namespaces | None


def read_pod_affinity(
    affinity: Manifest, namespace: str, labels: Mapping[str, str], namespaces: Namespaces | None
) -> Iterator[PodAffinityTerm]:
    """Yield the required and preferred terms of a pod's affinity and anti-affinity. Raises KeyError or ValueError.

    If `namespaces` is None, a term with a namespaceSelector applies to all namespaces.
    """
    pod = _PodIdentity(namespace, labels, namespaces)
    for part, anti in (("podAffinity", False), ("podAntiAffinity", True)):
        terms = affinity.get(part) or {}
        for term in terms.get(REQUIRED) or ():
            yield _term(term, pod, anti=anti, weight=0)
        for preferred in terms.get(PREFERRED) or ():
            yield _term(preferred["podAffinityTerm"], pod, anti=anti, weight=read_weight(preferred))


def at_odds(terms: Sequence[PodAffinityTerm], namespace: str, labels: Mapping[str, str]) -> str:
    """Return why a pod's required affinity and anti-affinity exclude every node, empty if they do not contradict.

    Terms that select the pod itself are ignored, because the first such pod has no other pods to be near or away from.
    """
    is_anti: dict[object, bool] = {}
    for term in terms:
        if term.weight or term.selector is None:
            continue
        whom = term.topology_key, term.selector.key, term.namespaces
        selects_itself = term.selector.matches(labels) and (
            term.namespaces is None or namespace in term.namespaces
        )
        if not selects_itself and is_anti.setdefault(whom, term.anti) != term.anti:
            return (
                f"its pod affinity and anti-affinity contradict each other: in one {term.topology_key} it must and must"
                f" not run with pods of {term.selector}"
            )
    return ""


def read_weight(preferred: Manifest) -> int:
    """Return the weight of a preferred term. Raises ValueError if it is not 1 to 100."""
    weight = preferred.get("weight")
    if type(weight) is not int or not 1 <= weight <= _HEAVIEST:
        raise ValueError(f"the weight of a preferred affinity term is {weight!r}: must be 1 to {_HEAVIEST}")
    return weight


def _term(term: Manifest, pod: _PodIdentity, *, anti: bool, weight: int) -> PodAffinityTerm:
    labels = pod.labels
    return PodAffinityTerm(
        topology_key=normalised(str(term["topologyKey"])),
        selector=parse_selector(
            term.get("labelSelector"),
            {k: labels[k] for k in term.get("matchLabelKeys") or () if k in labels},
            {k: labels[k] for k in term.get("mismatchLabelKeys") or () if k in labels},
        ),
        anti=anti,
        namespaces=_namespaces(term, pod),
        weight=weight,
    )


def _namespaces(term: Manifest, pod: _PodIdentity) -> frozenset[str] | None:
    """Return the named and the selected namespaces, the pod's own if the term has neither, or None for all."""
    namespaces = frozenset(map(str, term.get("namespaces") or ()))
    selector = parse_selector(term.get("namespaceSelector"))
    if selector is None:
        return namespaces or frozenset({pod.namespace})
    if not selector.requirements or pod.namespaces is None:
        return None
    return namespaces | pod.namespaces.selected(selector)


NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace has, with its name as the value."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces of a cluster. `labels` is namespace → its labels, limited to those that any selector uses."""

    labels: Mapping[str, Mapping[str, str]]
    _selected: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def selected(self, selector: Selector) -> frozenset[str]:
        """Return the names of the selected namespaces. Cached, because the shape of every pod needs them."""
        if selector.key not in self._selected:
            names = (name for name, labels in self.labels.items() if selector.matches(labels))
            self._selected[selector.key] = frozenset(names)
        return self._selected[selector.key]
