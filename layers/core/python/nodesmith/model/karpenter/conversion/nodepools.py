"""Convert Provisioners, and NodePools and NodeClaims of v1beta1 or with its fields, to karpenter.sh/v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.times import NEVER
from nodesmith.model.karpenter.conversion.drafts import Draft, FieldOutcome, KubeletOf, SourceObject, entries
from nodesmith.model.karpenter.conversion.labels import (
    add_provisioner_defaults,
    repaired_labels,
    repaired_requirements,
)
from nodesmith.model.karpenter.conversion.nodeclasses import (
    EC2_NODE_CLASS,
    InstallationSettings,
    nodeclass_of_provider,
)
from nodesmith.model.karpenter.nodepools import PROVISIONER
from nodesmith.model.schema.nodeclaims import EXPIRE_AFTER

NODE_POOL = ("NodePool", "karpenter.sh/v1")
_TEMPLATE = "spec.template.spec"
_REQUIREMENTS = f"{_TEMPLATE}.requirements"
_LABELS = "spec.template.metadata.labels"
CARRIED: Mapping[str, str] = {
    "spec.labels": _LABELS,
    "spec.annotations": "spec.template.metadata.annotations",
    "spec.taints": f"{_TEMPLATE}.taints",
    "spec.startupTaints": f"{_TEMPLATE}.startupTaints",
    "spec.requirements": _REQUIREMENTS,
    "spec.limits.resources": "spec.limits",
    "spec.weight": "spec.weight",
}
"""Field → its path in a NodePool."""
FIELDS = (
    "annotations labels taints startupTaints requirements kubeletConfiguration provider providerRef "
    "ttlSecondsAfterEmpty ttlSecondsUntilExpired limits weight consolidation"
).split()
_AFTER_EMPTY, _UNTIL_EXPIRED = "spec.ttlSecondsAfterEmpty", "spec.ttlSecondsUntilExpired"
WITHOUT_BUDGETS = "expiration no longer waits for budgets; set terminationGracePeriod to limit drains"
"""What has changed about expiration since v1beta1."""
_BUDGETS = "10 % of the nodes at a time, which v1 has as its default budget"


def nodepool_of(old: SourceObject) -> Draft:
    """Convert a Provisioner except for its AWS settings."""
    draft = Draft(old, *NODE_POOL)
    annotations = entries(draft.body["metadata"].get("annotations"))
    draft.body["metadata"]["annotations"] = {**annotations, PROVISIONER: old.name}
    old.refuse_unknown("spec", (*FIELDS, "kubelet"))
    for field, target in CARRIED.items():
        draft.carry(field, target)
    requirements = draft.get(_REQUIREMENTS)
    if requirements is not None:
        repaired = repaired_requirements(old, requirements, "spec.requirements", rename=True)
        draft.put(_REQUIREMENTS, repaired, "spec.requirements")
    if draft.get(_LABELS) is not None:
        draft.put(_LABELS, repaired_labels(old, draft.get(_LABELS), "spec.labels"), "spec.labels")
    add_provisioner_defaults(draft)
    _provisioner_limits(draft)
    _provisioner_expiry(draft)
    _provisioner_consolidation(draft)
    return draft


def aws_side(draft: Draft, name: str, installation: InstallationSettings) -> Draft | None:
    """Set the nodeClassRef of a converted Provisioner.

    Return the EC2NodeClass called `name` that is made from the Provisioner's `provider`, None if it has a reference or
    neither.
    """
    old, ref = draft.old, f"{_TEMPLATE}.nodeClassRef"
    referred, provider = entries(old.spec.get("providerRef")), old.spec.get("provider")
    old.refuse_unknown("spec.providerRef", ("apiVersion", "kind", "name"))
    if referred and provider is not None:
        old.note(
            FieldOutcome.REFUSED,
            "spec.provider",
            "cannot be combined with providerRef: leave out one of the two",
        )
    if referred:
        draft.put(ref, _ref(referred.get("name")), "spec.providerRef")
        old.note(FieldOutcome.MOVED, "spec.providerRef", "is nodeClassRef of the template")
        return None
    if provider is None:
        old.note(
            FieldOutcome.REFUSED,
            "spec.providerRef",
            "is missing: name the AWSNodeTemplate or EC2NodeClass to use",
        )
        return None
    draft.put(ref, _ref(name), "spec.provider")
    old.note(FieldOutcome.MOVED, "spec.provider", f"is EC2NodeClass/{name}, created from it")
    return nodeclass_of_provider(old, name, installation)


def _ref(name: object) -> dict[str, object]:
    kind, api_version = EC2_NODE_CLASS
    ref = {"group": api_version.partition("/")[0], "kind": kind, "name": name}
    return {field: value for field, value in ref.items() if value is not None}


def kubelet_of(old: SourceObject) -> KubeletOf | None:
    """Return the kubelet settings of a Provisioner, from either of the field's two names."""
    for name in ("kubeletConfiguration", "kubelet"):
        value = old.spec.get(name)
        if value is not None:
            return KubeletOf(old, f"spec.{name}", value)
    return None


def _provisioner_limits(draft: Draft) -> None:
    """Convert limits that are not under `resources`, whose intended meaning is certain."""
    limits = entries(draft.old.get("spec.limits"))
    others = {name: amount for name, amount in limits.items() if name != "resources"}
    if others and "resources" not in limits:
        draft.put("spec.limits", others, "spec.limits")
        draft.old.note(
            FieldOutcome.REPAIRED, "spec.limits", "lacks `resources`, and is read as if it were there"
        )
    elif others:
        draft.old.refuse_unknown("spec.limits", ("resources",))


def _provisioner_expiry(draft: Draft) -> None:
    target, age = f"{_TEMPLATE}.expireAfter", _seconds(draft.old, _UNTIL_EXPIRED)
    if age is None:
        draft.add(target, NEVER, "was unlimited by default, and is 720h today")
        return
    draft.put(target, age, _UNTIL_EXPIRED)
    reason = f"is {target}; {WITHOUT_BUDGETS}"
    draft.old.note(FieldOutcome.ALTERED, _UNTIL_EXPIRED, reason)


def _provisioner_consolidation(draft: Draft) -> None:
    old, empty_for = draft.old, _seconds(draft.old, _AFTER_EMPTY)
    old.refuse_unknown("spec.consolidation", ("enabled",))
    enabled = entries(old.spec.get("consolidation")).get("enabled")
    policy, field, reason = "WhenEmpty", "", "was not set, so nodes were never removed"
    after: object = NEVER
    if enabled is True:
        policy, after, field = "WhenEmptyOrUnderutilized", "0s", "spec.consolidation"
        reason = f"is consolidationPolicy {policy} with consolidateAfter 0s, {_BUDGETS}"
        if empty_for is not None:
            old.note(
                FieldOutcome.REFUSED,
                _AFTER_EMPTY,
                "cannot be combined with consolidation: leave out one of the two",
            )
    elif empty_for is not None:
        after, field = empty_for, _AFTER_EMPTY
        reason = f"is consolidationPolicy WhenEmpty with consolidateAfter {after}, {_BUDGETS}"
    if isinstance(enabled, (str, int)) and not isinstance(enabled, bool):
        old.note(FieldOutcome.REFUSED, "spec.consolidation.enabled", "must be true or false, without quotes")
    draft.put("spec.disruption.consolidationPolicy", policy, field)
    draft.put("spec.disruption.consolidateAfter", after, field)
    outcome = FieldOutcome.MOVED if field else FieldOutcome.ADDED
    old.note(outcome, field or "spec.consolidation", reason)


def _seconds(old: SourceObject, field: str) -> object:
    """Return seconds as a duration, even if the number is in quotes; None if unset. Any other value is refused."""
    value = old.get(field)
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        old.note(FieldOutcome.REPAIRED, field, f"is text, and is read as the number {value}")
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return None if value is None else f"{value}s"
    old.note(FieldOutcome.REFUSED, field, "must be a whole number of seconds, such as 30")
    return value


API_VERSION = "karpenter.sh/v1"


_POLICY, _AFTER = "spec.disruption.consolidationPolicy", "spec.disruption.consolidateAfter"
_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
_OLD_EXPIRY = "spec.disruption.expireAfter"
_TODAYS_KIND = {"AWSNodeTemplate": "EC2NodeClass"}


# A cluster stores both versions of a kind as one object, so the content distinguishes them: a field that only
# v1beta1 had is converted wherever it is found.
def nodepool(old: SourceObject) -> tuple[Draft, KubeletOf | None]:
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


def nodeclaim(old: SourceObject) -> Draft:
    """Convert a NodeClaim that a user created without a NodePool."""
    draft = Draft.of(old, API_VERSION)
    _requirements(draft, "spec.requirements")
    _nodeclass_ref(draft, "spec.nodeClassRef")
    if draft.take("spec.kubelet") is not None:
        reason = "has no effect: the EC2NodeClass has the kubelet settings"
        old.note(FieldOutcome.DROPPED, "spec.kubelet", reason)
    return draft


def _requirements(draft: Draft, field: str) -> None:
    requirements = draft.get(field)
    if requirements is not None:
        rename = draft.old.manifest.get("apiVersion") not in {API_VERSION, None}
        draft.put(field, repaired_requirements(draft.old, requirements, field, rename=rename), field)


def _nodeclass_ref(draft: Draft, field: str) -> None:
    """Set the group, which was part of the apiVersion, and the kind, which was optional and defaulted to AWS's."""
    ref = draft.get(field)
    if not isinstance(ref, Mapping):
        return
    kind, api_version = ref.get("kind"), draft.take(f"{field}.apiVersion")
    if isinstance(kind, str) and kind in _TODAYS_KIND:
        draft.put(f"{field}.kind", _TODAYS_KIND[kind], f"{field}.kind")
        draft.old.note(FieldOutcome.MOVED, f"{field}.kind", f"is {_TODAYS_KIND[kind]} today")
    if ref.get("group") is None and isinstance(api_version, str):
        draft.put(f"{field}.group", api_version.partition("/")[0], f"{field}.apiVersion")
        draft.old.note(FieldOutcome.MOVED, f"{field}.apiVersion", "is group, without the version")
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
        reason = "is read as spec.limits: only a Provisioner has `resources` there"
        draft.old.note(FieldOutcome.REPAIRED, "spec.limits.resources", reason)


def _expire(draft: Draft) -> None:
    """Move disruption.expireAfter, unless its current field has been set as well, which then takes precedence."""
    target, age = f"{_TEMPLATE}.expireAfter", draft.take(_OLD_EXPIRY)
    if age is None:
        return
    if draft.get(target) not in (None, EXPIRE_AFTER.default, age):
        reason = f"has no effect: {target} is set as well and takes precedence"
        draft.old.note(FieldOutcome.DROPPED, _OLD_EXPIRY, reason)
        return
    draft.put(target, age, _OLD_EXPIRY)
    reason = f"is {target}; {WITHOUT_BUDGETS}"
    draft.old.note(FieldOutcome.ALTERED, _OLD_EXPIRY, reason)


def _consolidate(draft: Draft) -> None:
    is_old = draft.old.manifest.get("apiVersion") not in {API_VERSION, None}
    if draft.get(_POLICY) == "WhenUnderutilized":
        is_old = True
        draft.put(_POLICY, _UNDERUTILIZED, _POLICY)
        draft.old.note(*_old_policy(draft.old.manifest))
    has_no_time = isinstance(draft.get("spec.disruption"), Mapping) and draft.get(_AFTER) is None
    if is_old and has_no_time and draft.get(_POLICY) in (None, _UNDERUTILIZED):
        draft.add(_AFTER, "0s", "was 0s by default, and must be set today")


def _old_policy(manifest: Mapping[str, Any]) -> tuple[FieldOutcome, str, str]:
    """Return the change for WhenUnderutilized.

    A cluster shows an object as v1 whatever version it was written in, whereas a file states its version.
    """
    is_of_a_cluster = "uid" in entries(manifest.get("metadata"))
    if manifest.get("apiVersion") != API_VERSION or is_of_a_cluster:
        return FieldOutcome.MOVED, _POLICY, f"is {_UNDERUTILIZED} today"
    reason = f"is WhenUnderutilized, which v1 does not have and Karpenter refuses: write {_UNDERUTILIZED}"
    return FieldOutcome.REPAIRED, _POLICY, reason
