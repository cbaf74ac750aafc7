"""Convert whole sets of objects to v1, so that objects that belong together are converted together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodesmith.model.karpenter.conversion import labels, nodepools
from nodesmith.model.karpenter.conversion.drafts import (
    Change,
    Conversion,
    Converted,
    Draft,
    FieldOutcome,
    KubeletOf,
    SourceObject,
    attach_kubelets,
    entries,
)
from nodesmith.model.karpenter.conversion.nodeclasses import (
    UNKNOWN,
    InstallationSettings,
    nodeclass,
    nodeclass_of_template,
)

CORE, AWS = "karpenter.sh", "karpenter.k8s.aws"
KINDS = {
    (CORE, "Provisioner"): "NodePool",
    (AWS, "AWSNodeTemplate"): "EC2NodeClass",
    (CORE, "NodePool"): "NodePool",
    (CORE, "NodeClaim"): "NodeClaim",
    (AWS, "EC2NodeClass"): "EC2NodeClass",
}
"""Group and kind → current kind."""
OLD_VERSIONS = frozenset(
    {f"{CORE}/v1alpha5", f"{AWS}/v1alpha1", f"{CORE}/v1beta1", f"{AWS}/v1beta1", f"{CORE}/v1", f"{AWS}/v1"}
)
_SETTINGS, _PROFILE = "karpenter-global-settings", "aws.defaultInstanceProfile"


class _Drafts(NamedTuple):
    pools: dict[int, tuple[Draft, KubeletOf | None]]
    classes: dict[int, list[Draft]]
    others: dict[int, Draft]


def is_converted(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object has a kind and version of Karpenter that can be converted."""
    group, _, _ = str(manifest.get("apiVersion")).partition("/")
    return (group, manifest.get("kind")) in KINDS and manifest.get("apiVersion") in OLD_VERSIONS


def convert(
    manifests: Sequence[Mapping[str, Any]],
    installation: InstallationSettings = UNKNOWN,
    *,
    workloads: bool = False,
) -> Conversion:
    """Return every object in its current form. With `workloads`, label keys in workloads are converted as well.

    An object whose kind or version is not Karpenter's stays as it is. So does an object that cannot be read, which the
    v1 parser then refuses. If an old and a current object would have the same kind and name, the current one wins.
    """
    olds = [SourceObject(number, manifest) for number, manifest in enumerate(manifests)]
    drafts = _Drafts({}, {}, {})
    installation = _with_settings(installation, olds)
    for old in olds:
        _begin(old, drafts, installation, workloads)
    _finish_provisioners(olds, drafts, installation)
    nodeclasses = _attach(drafts)
    converted = list(_without_doubles(olds, drafts, nodeclasses))
    return Conversion(tuple(converted), tuple(change for old in olds for change in old.changes))


def _begin(old: SourceObject, drafts: _Drafts, installation: InstallationSettings, workloads: bool) -> None:
    kind = str(old.manifest.get("kind"))
    if not is_converted(old.manifest):
        if workloads and kind in labels.KINDS:
            drafts.others[old.number] = labels.workload(old)
        return
    match kind:
        case "Provisioner":
            drafts.pools[old.number] = nodepools.nodepool_of(old), nodepools.kubelet_of(old)
        case "AWSNodeTemplate":
            drafts.classes[old.number] = [nodeclass_of_template(old, installation)]
        case "NodePool":
            drafts.pools[old.number] = nodepools.nodepool(old)
        case "NodeClaim":
            drafts.others[old.number] = nodepools.nodeclaim(old)
        case "EC2NodeClass":
            drafts.classes[old.number] = [nodeclass(old, installation)]


def _finish_provisioners(
    olds: Sequence[SourceObject], drafts: _Drafts, installation: InstallationSettings
) -> None:
    """Create the EC2NodeClasses of Provisioners, after all others so that their names do not collide."""
    names = {draft.name for drafts_of in drafts.classes.values() for draft in drafts_of}
    for old in olds:
        if old.number in drafts.pools and old.manifest.get("kind") == "Provisioner":
            name = old.name if old.name not in names else f"{old.name}-provider"
            new_class = nodepools.aws_side(drafts.pools[old.number][0], name, installation)
            if new_class is not None:
                drafts.classes[old.number] = [new_class]
                names.add(name)


def _attach(drafts: _Drafts) -> list[Draft]:
    """Return the additional EC2NodeClasses for NodePools with different kubelet settings."""
    pools_by_name = {draft.name: (draft, kubelet) for draft, kubelet in drafts.pools.values()}
    return attach_kubelets(
        pools_by_name, [draft for drafts_of in drafts.classes.values() for draft in drafts_of]
    )


def _without_doubles(
    olds: Sequence[SourceObject], drafts: _Drafts, nodeclasses: Sequence[Draft]
) -> Iterator[Converted]:
    """Yield the objects in order, each followed by those made from it, without old ones that a current one replaces."""
    today = {
        (str(old.manifest.get("kind")), old.name)
        for old in olds
        if is_converted(old.manifest) and old.manifest["kind"] in {"NodePool", "EC2NodeClass"}
    }
    for old in olds:
        results = [drafts.pools[old.number][0]] if old.number in drafts.pools else []
        results += drafts.classes.get(old.number, ())
        results += [n for n in nodeclasses if n.old.number == old.number]
        results += [drafts.others[old.number]] if old.number in drafts.others else []
        if not results:
            yield Converted(old.number, old.manifest)
        for draft in results:
            if old.manifest.get("kind") != draft.kind and (draft.kind, draft.name) in today:
                reason = f"has no effect: {draft.kind}/{draft.name} exists as well and takes precedence"
                old.note(FieldOutcome.DROPPED, "metadata.name", reason)
                continue
            yield draft.converted()


def _with_settings(installation: InstallationSettings, olds: Sequence[SourceObject]) -> InstallationSettings:
    """Return `installation` with the default instance profile of an old one's settings, if these are in `olds`."""
    for old in olds:
        if (
            old.manifest.get("kind") == "ConfigMap"
            and old.name == _SETTINGS
            and not installation.role + installation.instance_profile
        ):
            profile = entries(old.manifest.get("data")).get(_PROFILE)
            if isinstance(profile, str) and profile:
                return installation._replace(instance_profile=profile)
    return installation


def needing_attention(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes that need attention."""
    return tuple(change for change in changes if not change.is_quiet)
