"""Convert amiFamily to amiSelectorTerms: to an alias if the family chose the images, else the user's own terms."""

from __future__ import annotations

from typing import Any

from nodesmith.model.conversion.changes import Fate
from nodesmith.model.conversion.drafts import Draft, entries
from nodesmith.model.schema.selectors import ALIAS_FAMILIES

ALIAS_VERSION = "compatibility.karpenter.k8s.aws/v1-alias-version"
"""Annotation of a v1beta1 EC2NodeClass with the version of the images to use."""
_LAST_AL2 = (1, 32)
_ALIASES = {family: alias for alias, family in ALIAS_FAMILIES.items()}
_FAMILIES = (*_ALIASES, "Custom", "Ubuntu")
_FAMILY, _TERMS = "spec.amiFamily", "spec.amiSelectorTerms"
_UBUNTU_ROOT = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}
_SSM = "/aws/service/canonical/ubuntu/eks/22.04/VERSION/stable/current/ARCH/hvm/ebs-gp2/ami-id"


def choose_images(draft: Draft, kubernetes: str) -> None:
    """Set amiFamily and, if no images are selected, the alias of the family's own images.

    `kubernetes` is the cluster's version, such as `1.31`, empty if unknown. An unknown version is taken to be new.
    """
    family = _family(draft)
    selected = draft.get(_TERMS)
    if family is not None and not isinstance(family, str):
        draft.put(_FAMILY, family, _FAMILY)
    elif family == "Ubuntu":
        _ubuntu(draft, selected)
    elif selected is not None:
        _selected(draft, family, selected)
    elif family in _ALIASES or family is None:
        _alias(draft, family, kubernetes)
    else:
        draft.put(_FAMILY, family, _FAMILY)
        draft.refuse(
            _TERMS, _FAMILY, f"is {family!r}, which has no images of its own: add {_selector(draft)}"
        )


def _selected(draft: Draft, family: str | None, terms: Any) -> None:
    by_alias = isinstance(terms, list) and any("alias" in term for term in terms if isinstance(term, dict))
    if family is not None:
        draft.put(_FAMILY, family, _FAMILY)
    elif not by_alias:
        draft.add(_FAMILY, "AL2", "AL2 was the default for user data")


def _alias(draft: Draft, family: str | None, kubernetes: str) -> None:
    version = str(entries(draft.get("metadata.annotations")).get(ALIAS_VERSION) or "")
    name = _ALIASES[family or "AL2"]
    field = _FAMILY if family else ""
    if name == "al2" and not _has_al2(kubernetes):
        name, version = "al2023", ""
        what = "is AL2" if family else "is missing, and AL2 was the default"
        why = (
            f"{what}: there are no AL2 images for Kubernetes 1.33 and later, so nodes get Amazon Linux 2023. "
            "Check user data and anything that relies on cgroup v1 or yum"
        )
        draft.old.note(Fate.ALTERED, _FAMILY, why)
    else:
        what = f"was {family}" if family else "was not given"
        why = f"{what}, without a selector: images of the alias {name}@{version or 'latest'}"
        draft.old.note(Fate.MOVED if family else Fate.ADDED, _FAMILY, why)
    draft.put(_TERMS, [{"alias": f"{name}@{version or 'latest'}"}], field)


def _has_al2(kubernetes: str) -> bool:
    major, _, minor = kubernetes.partition(".")
    known = major.isdigit() and minor.isdigit() and len(kubernetes) <= 8
    return known and (int(major), int(minor)) <= _LAST_AL2


def _ubuntu(draft: Draft, selected: Any) -> None:
    """Convert Ubuntu, which is no longer a family: it uses AL2's user data and its own root device.

    Its images must be selected.
    """
    draft.put(_FAMILY, "AL2", _FAMILY)
    draft.old.note(Fate.ALTERED, _FAMILY, "is Ubuntu, which uses user data in the format of AL2")
    if draft.get("spec.blockDeviceMappings") is None:
        draft.add("spec.blockDeviceMappings", [_UBUNTU_ROOT], "was Ubuntu's root volume by default")
    if selected is None:
        draft.refuse(_TERMS, _FAMILY, f"is Ubuntu, but nothing selects its images: add {_selector(draft)}")


def _selector(draft: Draft) -> str:
    """Return advice on how to select images, in the object's own version and in v1."""
    today = f"amiSelectorTerms, for instance with an ssmParameter such as {_SSM}"
    if draft.old.manifest.get("kind") == draft.kind:
        return today
    return f"amiSelector, such as {{aws::owners: ACCOUNT, aws::name: NAME-*}}, or after conversion {today}"


def _family(draft: Draft) -> Any:
    """Return the family in its correct spelling."""
    given = draft.old.get(_FAMILY)
    if not isinstance(given, str) or given in _FAMILIES:
        return given
    meant = next((each for each in _FAMILIES if each.lower() == given.lower()), None)
    if meant:
        draft.old.note(Fate.REPAIRED, _FAMILY, f"is {given}, and is read as {meant}")
    return meant or given
