"""Convert NodePools and NodeClaims of karpenter.sh/v1beta1, or of v1 with v1beta1 fields, to v1.

A cluster stores both versions of a kind as one object, so the content distinguishes them: a field that only v1beta1 had
is converted wherever it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.conversion.changes import Fate
from nodesmith.model.conversion.drafts import Draft, Old, entries
from nodesmith.model.conversion.kubelets import KubeletOf
from nodesmith.model.conversion.nodetemplates import EC2_NODE_CLASS
from nodesmith.model.conversion.provisioners import WITHOUT_BUDGETS
from nodesmith.model.conversion.requirements import repaired_labels, repaired_requirements
from nodesmith.model.schema.nodespec import EXPIRE_AFTER

API_VERSION = "karpenter.sh/v1"
_TEMPLATE = "spec.template.spec"
_LABELS = "spec.template.metadata.labels"
_POLICY, _AFTER = "spec.disruption.consolidationPolicy", "spec.disruption.consolidateAfter"
_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
_OLD_EXPIRY = "spec.disruption.expireAfter"
_TODAYS_KIND = {"AWSNodeTemplate": "EC2NodeClass"}


def nodepool(old: Old) -> tuple[Draft, KubeletOf | None]:
    """Convert a NodePool. Return its kubelet settings separately, since they now belong in the EC2NodeClass."""
    draft = Draft.of(old, API_VERSION)
    _requirements(draft, f"{_TEMPLATE}.requirements")
    if draft.get(_LABELS) is not None:
        draft.put(_LABELS, repaired_labels(old, draft.get(_LABELS), _LABELS), _LABELS)
    _nodeclass_ref(draft, f"{_TEMPLATE}.nodeClassRef")
    _limits(draft)
    _expire(draft)
    _consolidate(draft)
    kubelet = draft.take(f"{_TEMPLATE}.kubelet")
    return draft, KubeletOf(old, f"{_TEMPLATE}.kubelet", kubelet) if kubelet is not None else None


def nodeclaim(old: Old) -> Draft:
    """Convert a NodeClaim that a user created without a NodePool."""
    draft = Draft.of(old, API_VERSION)
    _requirements(draft, "spec.requirements")
    _nodeclass_ref(draft, "spec.nodeClassRef")
    if draft.take("spec.kubelet") is not None:
        why = "has no effect: the EC2NodeClass has the kubelet settings"
        old.note(Fate.DROPPED, "spec.kubelet", why)
    return draft


def _requirements(draft: Draft, field: str) -> None:
    given = draft.get(field)
    if given is not None:
        rename = draft.old.manifest.get("apiVersion") not in {API_VERSION, None}
        draft.put(field, repaired_requirements(draft.old, given, field, rename=rename), field)


def _nodeclass_ref(draft: Draft, field: str) -> None:
    """Set the group, which was part of the apiVersion, and the kind, which was optional and defaulted to AWS's."""
    given = draft.get(field)
    if not isinstance(given, Mapping):
        return
    kind, api_version = given.get("kind"), draft.take(f"{field}.apiVersion")
    if isinstance(kind, str) and kind in _TODAYS_KIND:
        draft.put(f"{field}.kind", _TODAYS_KIND[kind], f"{field}.kind")
        draft.old.note(Fate.MOVED, f"{field}.kind", f"is {_TODAYS_KIND[kind]} today")
    if given.get("group") is None and isinstance(api_version, str):
        draft.put(f"{field}.group", api_version.partition("/")[0], f"{field}.apiVersion")
        draft.old.note(Fate.MOVED, f"{field}.apiVersion", "is group, without the version")
    if draft.old.manifest.get("apiVersion") in {API_VERSION, None}:
        return
    for name, value in (("group", EC2_NODE_CLASS[1].partition("/")[0]), ("kind", EC2_NODE_CLASS[0])):
        if draft.get(f"{field}.{name}") is None:
            draft.add(f"{field}.{name}", value, f"was {value} by default")


def _limits(draft: Draft) -> None:
    inner = entries(draft.get("spec.limits")).get("resources")
    if isinstance(inner, Mapping):
        limits = {name: value for name, value in draft.get("spec.limits").items() if name != "resources"}
        draft.put("spec.limits", {**limits, **inner}, "spec.limits.resources")
        why = "is read as spec.limits: only a Provisioner has `resources` there"
        draft.old.note(Fate.REPAIRED, "spec.limits.resources", why)


def _expire(draft: Draft) -> None:
    """Move disruption.expireAfter, unless its current field has been set as well, which then takes precedence."""
    target, age = f"{_TEMPLATE}.expireAfter", draft.take(_OLD_EXPIRY)
    if age is None:
        return
    if draft.get(target) not in (None, EXPIRE_AFTER.default, age):
        why = f"has no effect: {target} is set as well and takes precedence"
        draft.old.note(Fate.DROPPED, _OLD_EXPIRY, why)
        return
    draft.put(target, age, _OLD_EXPIRY)
    why = f"is {target}; {WITHOUT_BUDGETS}"
    draft.old.note(Fate.ALTERED, _OLD_EXPIRY, why)


def _consolidate(draft: Draft) -> None:
    is_old = draft.old.manifest.get("apiVersion") not in {API_VERSION, None}
    if draft.get(_POLICY) == "WhenUnderutilized":
        is_old = True
        draft.put(_POLICY, _UNDERUTILIZED, _POLICY)
        draft.old.note(*_old_policy(draft.old.manifest))
    has_no_time = isinstance(draft.get("spec.disruption"), Mapping) and draft.get(_AFTER) is None
    if is_old and has_no_time and draft.get(_POLICY) in (None, _UNDERUTILIZED):
        draft.add(_AFTER, "0s", "was 0s by default, and must be set today")


def _old_policy(manifest: Mapping[str, Any]) -> tuple[Fate, str, str]:
    """Return the change for WhenUnderutilized.

    A cluster shows an object as v1 whatever version it was written in, whereas a file states its version.
    """
    is_of_a_cluster = "uid" in entries(manifest.get("metadata"))
    if manifest.get("apiVersion") != API_VERSION or is_of_a_cluster:
        return Fate.MOVED, _POLICY, f"is {_UNDERUTILIZED} today"
    why = f"is WhenUnderutilized, which v1 does not have and Karpenter refuses: write {_UNDERUTILIZED}"
    return Fate.REPAIRED, _POLICY, why
