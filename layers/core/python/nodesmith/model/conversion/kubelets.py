"""Move kubelet settings from NodePools to EC2NodeClasses, which are split if their NodePools' settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.conversion.drafts import Draft, Fate, Old, Origin, entries
from nodesmith.model.schema.nodeclasses import KUBELET

_RUNTIME, _PER_CORE = "containerRuntime", "podsPerCore"
_REF = "spec.template.spec.nodeClassRef.name"


class KubeletOf(NamedTuple):
    """A NodePool's kubelet settings, and the field that contains them."""

    old: Old
    field: str
    value: Any


def attach_kubelets(pools: Mapping[str, tuple[Draft, KubeletOf | None]], classes: list[Draft]) -> list[Draft]:
    """Put NodePools' kubelet settings into their EC2NodeClasses, and return the additional EC2NodeClasses this needs.

    An additional EC2NodeClass is created if the settings of the NodePools that share one differ. `pools` are all
    NodePools by name; each one with settings is pointed to the EC2NodeClass that has them.
    """
    by_name = {each.name: each for each in classes}
    made: list[Draft] = []
    for class_name in sorted({str(draft.get(_REF)) for draft, kubelet in pools.values() if kubelet}):
        sharing = [(d, k) for _, (d, k) in sorted(pools.items()) if str(d.get(_REF)) == class_name]
        found = by_name.get(class_name)
        if found is None:
            for _, kubelet in sharing:
                if kubelet:
                    why = f"belongs in EC2NodeClass {class_name!r} today, which is missing: convert both together"
                    kubelet.old.note(Fate.DROPPED, kubelet.field, why)
            continue
        made += _split(found, sharing, set(by_name) | {each.name for each in made})
    return made


def _split(nodeclass: Draft, sharing: list[tuple[Draft, KubeletOf | None]], taken: set[str]) -> list[Draft]:
    """Put the settings into the EC2NodeClass itself if all NodePools agree, else into a copy for each variant."""
    variants = [(draft, kubelet, _settings(kubelet)) for draft, kubelet in sharing]
    agreed = (
        all(settings == variants[0][2] for _, _, settings in variants)
        and nodeclass.get("spec.kubelet") is None
    )
    made: list[tuple[Draft, dict[str, Any]]] = []
    for draft, kubelet, settings in variants:
        if kubelet is None or settings is None:
            continue
        target = nodeclass if agreed else next((c for c, known in made if known == settings), None)
        if target is None:
            target = _copy(nodeclass, _free(f"{nodeclass.name}-{draft.name}", taken))
            taken.add(target.name)
            made.append((target, settings))
        settings = _without_pods_per_core(settings, target, kubelet)
        target.put("spec.kubelet", settings, kubelet.field, kubelet.old)
        kubelet.old.note(Fate.MOVED, kubelet.field, f"is spec.kubelet of EC2NodeClass/{target.name}")
        if target is not nodeclass:
            _repoint(draft, target.name)
    return [each for each, _ in made]


def _settings(kubelet: KubeletOf | None) -> Any:
    """Return the settings without the container runtime; the same object if it is not set."""
    if kubelet is None or not isinstance(kubelet.value, Mapping):
        return kubelet.value if kubelet else None
    given = entries(kubelet.value)
    known = tuple(KUBELET.fields)
    for name in given:
        if name == _RUNTIME:
            why = "has no effect: the container runtime is always containerd"
            kubelet.old.note(Fate.DROPPED, f"{kubelet.field}.{name}", why)
        elif name not in known and (hint := did_you_mean(name, known)):
            kubelet.old.note(
                Fate.ALTERED, f"{kubelet.field}.{name}", f"is a field that Karpenter did not know{hint}"
            )
    return {n: v for n, v in given.items() if n != _RUNTIME} if _RUNTIME in given else kubelet.value


def _without_pods_per_core(settings: Any, nodeclass: Draft, kubelet: KubeletOf) -> Any:
    """Return the settings without what Karpenter ignores on Bottlerocket, and which would be refused there today."""
    if not isinstance(settings, Mapping) or _PER_CORE not in settings or not _is_bottlerocket(nodeclass):
        return settings
    why = (
        "has no effect: Bottlerocket has no such setting, and Karpenter ignored it; use maxPods to limit pods"
    )
    kubelet.old.note(Fate.DROPPED, f"{kubelet.field}.{_PER_CORE}", why)
    return {name: value for name, value in settings.items() if name != _PER_CORE}


def _is_bottlerocket(nodeclass: Draft) -> bool:
    terms = nodeclass.get("spec.amiSelectorTerms")
    aliases = [t.get("alias") for t in terms if isinstance(t, Mapping)] if isinstance(terms, list) else []
    family = nodeclass.get("spec.amiFamily") or next((str(a).partition("@")[0] for a in aliases if a), "")
    return str(family).lower() == "bottlerocket"


def _copy(nodeclass: Draft, name: str) -> Draft:
    copy = Draft(nodeclass.old, nodeclass.kind, str(nodeclass.body["apiVersion"]), name)
    copy.body = {**nodeclass.body, "metadata": {**nodeclass.body["metadata"], "name": name}}
    copy.body["spec"] = dict(nodeclass.body.get("spec") or {})
    copy.origins = {**nodeclass.origins, "metadata.name": Origin(nodeclass.old.number, "")}
    return copy


def _free(name: str, taken: set[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _repoint(draft: Draft, name: str) -> None:
    draft.put(
        "spec.template.spec.nodeClassRef",
        {**draft.get("spec.template.spec.nodeClassRef"), "name": name},
        _origin(draft),
    )


def _origin(draft: Draft) -> str:
    known = draft.converted().origin("spec.template.spec.nodeClassRef")
    return known.field if known else ""
