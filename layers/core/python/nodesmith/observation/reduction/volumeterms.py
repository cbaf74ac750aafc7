"""From which nodes a volume can be reached: alternatives of node requirements, as text that alike volumes share.

`ANYWHERE` is no restriction. Everything else is canonical JSON, a list of alternatives, each a list of Kubernetes'
`matchExpressions`; one alternative must hold, and where there is none (`NOWHERE`) no node will do.
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
"""A pod of many volumes keeps the first: fewer nodes are tried then, never a wrong one."""


def volume_terms(manifest: Manifest) -> str:
    """Read a PersistentVolume's node affinity and the zones of its labels (kube-scheduler: VolumeZone).

    The hostname of local and hostPath volumes does not count, as in Karpenter. Raises ValueError, TypeError or
    AttributeError on what no API server would hold.
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
    """Read the allowedTopologies of a StorageClass: where it may make volumes."""
    terms = [
        Requirements.of(*(requirement(str(e["key"]), "In", map(str, e["values"])) for e in expressions))
        for topology in topologies or ()
        if (expressions := topology.get("matchLabelExpressions"))
    ]
    return _text(terms) if terms else ANYWHERE


def node_terms(node_name: str) -> str:
    """Return the terms of what is to be on one node."""
    return _text([Requirements.from_labels({HOSTNAME: node_name})])


def either(texts: Iterable[str]) -> str:
    """Join alternatives: what one of the texts allows. No text allows nothing."""
    given = sorted(set(texts))
    if ANYWHERE in given:
        return ANYWHERE
    return _text(term for text in given for term in read_terms(text))


@lru_cache(maxsize=4096)
def both(text: str, other: str) -> str:
    """Return from where two volumes can both be reached."""
    if ANYWHERE in (text, other) or text == other:
        return text or other
    return _text(_compatible(read_terms(text), read_terms(other)))


@lru_cache(maxsize=4096)
def read_terms(text: str) -> tuple[Requirements, ...]:
    """Return the alternatives of a text."""
    terms = (_node_term({"matchExpressions": term}) for term in json.loads(text or "[[]]"))
    return tuple(term for term in terms if term is not None)


def _compatible(terms: Iterable[Requirements], others: Iterable[Requirements]) -> list[Requirements]:
    others = tuple(others)
    met = (_met((*term.values(), *other.values())) for term in terms for other in others)
    return [term for term in met if term is not None]


def _met(parts: Sequence[Requirement]) -> Requirements | None:
    """Return what meets all parts; None where nothing does."""
    return None if contradiction(parts) else Requirements.of(*parts)


def _node_term(term: Manifest) -> Requirements | None:
    # A matchFields term can only be about metadata.name.
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
