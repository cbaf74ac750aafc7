"""Convert a Provisioner of karpenter.sh/v1alpha5 to a NodePool, and its `provider`, if any, to an EC2NodeClass."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.times import NEVER
from nodesmith.model.conversion.changes import Fate
from nodesmith.model.conversion.drafts import Draft, Old, entries
from nodesmith.model.conversion.kubelets import KubeletOf
from nodesmith.model.conversion.nodetemplates import EC2_NODE_CLASS, Surroundings, nodeclass_of_provider
from nodesmith.model.conversion.requirements import (
    add_provisioner_defaults,
    repaired_labels,
    repaired_requirements,
)
from nodesmith.model.karpenter.nodepoolannotations import PROVISIONER

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


def nodepool_of(old: Old) -> Draft:
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
    _limits(draft)
    _expire(draft)
    _consolidate(draft)
    return draft


def aws_side(draft: Draft, name: str, around: Surroundings) -> Draft | None:
    """Set the nodeClassRef of a converted Provisioner.

    Return the EC2NodeClass called `name` that is made from the Provisioner's `provider`, None if it has a reference or
    neither.
    """
    old, ref = draft.old, f"{_TEMPLATE}.nodeClassRef"
    referred, provider = entries(old.spec.get("providerRef")), old.spec.get("provider")
    old.refuse_unknown("spec.providerRef", ("apiVersion", "kind", "name"))
    if referred and provider is not None:
        old.note(
            Fate.REFUSED, "spec.provider", "cannot be combined with providerRef: leave out one of the two"
        )
    if referred:
        draft.put(ref, _ref(referred.get("name")), "spec.providerRef")
        old.note(Fate.MOVED, "spec.providerRef", "is nodeClassRef of the template")
        return None
    if provider is None:
        old.note(
            Fate.REFUSED, "spec.providerRef", "is missing: name the AWSNodeTemplate or EC2NodeClass to use"
        )
        return None
    draft.put(ref, _ref(name), "spec.provider")
    old.note(Fate.MOVED, "spec.provider", f"is EC2NodeClass/{name}, created from it")
    return nodeclass_of_provider(old, name, around)


def _ref(name: object) -> dict[str, object]:
    kind, api_version = EC2_NODE_CLASS
    ref = {"group": api_version.partition("/")[0], "kind": kind, "name": name}
    return {field: value for field, value in ref.items() if value is not None}


def kubelet_of(old: Old) -> KubeletOf | None:
    """Return the kubelet settings of a Provisioner, from either of the field's two names."""
    for name in ("kubeletConfiguration", "kubelet"):
        value = old.spec.get(name)
        if value is not None:
            return KubeletOf(old, f"spec.{name}", value)
    return None


def _limits(draft: Draft) -> None:
    """Convert limits that are not under `resources`, whose intended meaning is certain."""
    limits = entries(draft.old.get("spec.limits"))
    others = {name: amount for name, amount in limits.items() if name != "resources"}
    if others and "resources" not in limits:
        draft.put("spec.limits", others, "spec.limits")
        draft.old.note(Fate.REPAIRED, "spec.limits", "lacks `resources`, and is read as if it were there")
    elif others:
        draft.old.refuse_unknown("spec.limits", ("resources",))


def _expire(draft: Draft) -> None:
    target, age = f"{_TEMPLATE}.expireAfter", _seconds(draft.old, _UNTIL_EXPIRED)
    if age is None:
        draft.add(target, NEVER, "was unlimited by default, and is 720h today")
        return
    draft.put(target, age, _UNTIL_EXPIRED)
    why = f"is {target}; {WITHOUT_BUDGETS}"
    draft.old.note(Fate.ALTERED, _UNTIL_EXPIRED, why)


def _consolidate(draft: Draft) -> None:
    old, empty_for = draft.old, _seconds(draft.old, _AFTER_EMPTY)
    old.refuse_unknown("spec.consolidation", ("enabled",))
    enabled = entries(old.spec.get("consolidation")).get("enabled")
    policy, field, why = "WhenEmpty", "", "was not set, so nodes were never removed"
    after: object = NEVER
    if enabled is True:
        policy, after, field = "WhenEmptyOrUnderutilized", "0s", "spec.consolidation"
        why = f"is consolidationPolicy {policy} with consolidateAfter 0s, {_BUDGETS}"
        if empty_for is not None:
            old.note(
                Fate.REFUSED, _AFTER_EMPTY, "cannot be combined with consolidation: leave out one of the two"
            )
    elif empty_for is not None:
        after, field = empty_for, _AFTER_EMPTY
        why = f"is consolidationPolicy WhenEmpty with consolidateAfter {after}, {_BUDGETS}"
    if isinstance(enabled, (str, int)) and not isinstance(enabled, bool):
        old.note(Fate.REFUSED, "spec.consolidation.enabled", "must be true or false, without quotes")
    draft.put("spec.disruption.consolidationPolicy", policy, field)
    draft.put("spec.disruption.consolidateAfter", after, field)
    fate = Fate.MOVED if field else Fate.ADDED
    old.note(fate, field or "spec.consolidation", why)


def _seconds(old: Old, field: str) -> object:
    """Return seconds as a duration, even if the number is in quotes; None if unset. Any other value is refused."""
    given = old.get(field)
    if isinstance(given, str) and given.isdecimal() and given.isascii():
        old.note(Fate.REPAIRED, field, f"is text, and is read as the number {given}")
        given = int(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return None if given is None else f"{given}s"
    old.note(Fate.REFUSED, field, "must be a whole number of seconds, such as 30")
    return given
