"""The nodes from which a volume can be reached: alternative node requirements, as text that volumes can share.

`ANYWHERE` is no restriction. Any other text is canonical JSON: a list of alternatives, each a list of Kubernetes'
`matchExpressions`. One alternative must hold; without any (`NOWHERE`), no node fits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from nodesmith.model.apimachinery.labels import HOSTNAME, REGION, ZONE, normalised
from nodesmith.model.apimachinery.requirements import Requirement, Requirements, contradiction, requirement
from nodesmith.model.kubernetes.pods import Manifest

ANYWHERE, NOWHERE = "", "[]"
_VALUES_IN_LABEL = "__"
_MOST_ALTERNATIVES = 64
"""A pod with many volumes keeps only the first alternatives. Then fewer nodes are tried, but never a wrong one."""


def volume_terms(manifest: Manifest) -> str:
    """Return the terms of a PersistentVolume: its node affinity and zone labels (kube-scheduler: VolumeZone).

    As in Karpenter, the hostname of local and hostPath volumes is ignored. Raises ValueError, TypeError or
    AttributeError for content that no API server accepts.
    """
    spec = manifest.get("spec") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    ignored = {HOSTNAME} if spec.get("local") or spec.get("hostPath") else set()
    labelled = _label_zones(manifest["metadata"].get("labels") or {})
    if required is None:
        return _text([labelled]) if labelled else ANYWHERE
    terms = (_node_term(term) for term in required.get("nodeSelectorTerms") or () if any(term.values()))
    kept = [Requirements({key: r for key, r in term.items() if key not in ignored}) for term in terms if term]
    return _text(_compatible(kept, [labelled]))


def topology_terms(topologies: Iterable[Manifest] | None) -> str:
    """Return the terms of a StorageClass's allowedTopologies: where it may create volumes."""
    terms = [
        Requirements.of(*(requirement(str(e["key"]), "In", map(str, e["values"])) for e in expressions))
        for topology in topologies or ()
        if (expressions := topology.get("matchLabelExpressions"))
    ]
    return _text(terms) if terms else ANYWHERE


def node_terms(node_name: str) -> str:
    """Return the terms that allow only one node."""
    return _text([Requirements.from_labels({HOSTNAME: node_name})])


def either(texts: Iterable[str]) -> str:
    """Return the union of texts: what any of them allows. Without texts, it allows nothing."""
    given = sorted(set(texts))
    if ANYWHERE in given:
        return ANYWHERE
    return _text(term for text in given for term in read_terms(text))


@lru_cache(maxsize=4096)
def both(text: str, other: str) -> str:
    """Return the terms of nodes from which two volumes can both be reached."""
    if ANYWHERE in (text, other) or text == other:
        return text or other
    return _text(_compatible(read_terms(text), read_terms(other)))


@lru_cache(maxsize=4096)
def read_terms(text: str) -> tuple[Requirements, ...]:
    """Return the alternatives in a text."""
    terms = (_node_term({"matchExpressions": term}) for term in json.loads(text or "[[]]"))
    return tuple(term for term in terms if term is not None)


def _compatible(terms: Iterable[Requirements], others: Iterable[Requirements]) -> list[Requirements]:
    others = tuple(others)
    met = (_met((*term.values(), *other.values())) for term in terms for other in others)
    return [term for term in met if term is not None]


def _met(parts: Sequence[Requirement]) -> Requirements | None:
    """Return the intersection of all parts, None if nothing satisfies them."""
    return None if contradiction(parts) else Requirements.of(*parts)


def _node_term(term: Manifest) -> Requirements | None:
    # matchFields only support metadata.name.
    named = ({**field, "key": HOSTNAME} for field in term.get("matchFields") or ())
    expressions = (*(term.get("matchExpressions") or ()), *named)
    return _met(
        [requirement(str(e["key"]), str(e["operator"]), map(str, e.get("values") or ())) for e in expressions]
    )


def _label_zones(labels: Mapping[str, str]) -> Requirements:
    return Requirements.of(
        *(
            requirement(key, "In", value.split(_VALUES_IN_LABEL))
            for key, value in labels.items()
            if normalised(key) in (ZONE, REGION)
        )
    )


def _text(terms: Iterable[Requirements]) -> str:
    written = {json.dumps(list(_expressions(term)), separators=(",", ":")) for term in terms}
    if "[]" in written:
        return ANYWHERE
    return sys.intern(f"[{','.join(sorted(written)[:_MOST_ALTERNATIVES])}]")


def _expressions(term: Requirements) -> Iterator[dict[str, object]]:
    for key in sorted(term):
        needed = term[key]
        bounds = {"Gte": needed.gte, "Lte": needed.lte}
        limits = [(name, [str(bound)]) for name, bound in bounds.items() if bound is not None]
        for operator, values in _plain(needed, bounded=bool(limits)) + limits:
            yield {"key": key, "operator": operator, **({"values": values} if values else {})}


def _plain(needed: Requirement, *, bounded: bool) -> list[tuple[str, list[str]]]:
    return [] if bounded and not needed.values else [(str(needed.operator), sorted(needed.values))]
