"""What has drifted on a node, in a sentence: Karpenter's reason names the object, but not the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nodesmith.model.apimachinery.labels import Taint, in_domain
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.nodeclasses.status import Image

_MOST_FIELDS = 3
_LONGEST_VALUE = 60
_OWN_DOMAINS = (
    "karpenter.sh",
    "karpenter.k8s.aws",
    "kubernetes.io",
    "k8s.io",
    "amazonaws.com",
    "k8s.aws",
    "nodesmith.dev",
)
"""Domains of labels and annotations that a node also has without its NodePool's template."""


def of_template(claim: NodeClaim, pool: NodePool) -> str:
    """Return the fields of a NodePool's template that differ from those that a claim was made from."""
    was_labelled = {key: value for key, value in claim.labels.items() if key not in pool.requirements}
    fields = [
        *_of_map("label", was_labelled, pool.labels),
        *_of_map("annotation", claim.annotations, pool.annotations),
        *_of_value("taints", _listed(claim.taints), _listed(pool.taints)),
        *_of_value("startupTaints", _listed(claim.startup_taints), _listed(pool.startup_taints)),
        *_of_value("nodeClassRef.name", claim.nodeclass.name, pool.nodeclass.name),
        *_of_value("expireAfter", claim.expire_after, pool.expire_after),
        *_of_value("terminationGracePeriod", claim.termination_grace_period, pool.termination_grace_period),
    ]
    more = len(fields) - _MOST_FIELDS
    return "; ".join([*fields[:_MOST_FIELDS], *([f"and {more} more"] if more > 0 else [])])


def of_requirement(requirement: Requirement, value: str | None) -> str:
    """Return that a node does not meet a requirement of its NodePool. `value` is that of its label."""
    return f"{requirement} is required, the node has {value or 'no such label'}"


def of_type(claim: NodeClaim) -> str:
    """Return that a claim's instance type is not sold any more."""
    return f"{claim.instance_type} is not sold as {claim.capacity_type} in {claim.zone}"


def of_nodeclass(claim: NodeClaim) -> str:
    """Return what a hash of an EC2NodeClass covers, because it does not say what of it has changed."""
    return (
        f"a field of EC2NodeClass {claim.nodeclass.name}, or the cluster's certificate authority, has changed"
    )


def of_image(claim: NodeClaim, image: str, images: Iterable[Image]) -> str:
    """Return the image that a claim's instance type would boot from now, with its name."""
    name = next((each.name for each in images if each.id == image and each.name), "")
    return f"its image is {claim.image_id}, a new node's {image}{f' ({name})' if name else ''}"


def of_selected(what: str, own: Iterable[str], selected: Iterable[str]) -> str:
    """Return what a claim was launched with, and what its EC2NodeClass selects now."""
    now, before = (", ".join(sorted(ids)) or "none" for ids in (selected, own))
    return f"its {what}: {before}; its EC2NodeClass selects {now}"


def _of_map(kind: str, own: Mapping[str, str], template: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(own.keys() | template.keys()):
        is_others = key not in template and any(in_domain(key, domain) for domain in _OWN_DOMAINS)
        if not is_others:
            yield from _of_value(f"{kind} {key}", own.get(key), template.get(key))


def _of_value(field: str, own: str | None, template: str | None) -> Iterator[str]:
    if own != template:
        yield f"{field} is {_shown(template)}, was {_shown(own)}"


def _shown(value: str | None) -> str:
    if value is None:
        return "not set"
    return (value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…") or "empty"


def _listed(taints: Iterable[Taint]) -> str | None:
    return ", ".join(sorted(f"{t.key}={t.value}:{t.effect}" if t.value else str(t) for t in taints)) or None
