"""Convert AWSNodeTemplates, a Provisioner's `provider` and old EC2NodeClasses to EC2NodeClasses of v1."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import WELL_KNOWN
from nodesmith.model.karpenter.conversion.drafts import Draft, FieldOutcome, Origin, SourceObject, entries
from nodesmith.model.nodeclasses.nodeclasses import DEFAULT_ROLE
from nodesmith.model.schema.fields import ALIAS_FAMILIES

EC2_NODE_CLASS = ("EC2NodeClass", "karpenter.k8s.aws/v1")
CARRIED = (
    "userData",
    "instanceProfile",
    "tags",
    "context",
    "blockDeviceMappings",
    "detailedMonitoring",
    "metadataOptions",
)
"""Fields whose names have not changed."""
FIELDS = (*CARRIED, "subnetSelector", "securityGroupSelector", "amiSelector", "amiFamily", "launchTemplate")
_INLINE = ("apiVersion", "kind", "launchTemplateName")
_DISCOVERY = "karpenter.sh/discovery"
_GUIDE_ROLE = "KarpenterNodeRole-"
_NODE_ROLES = "nodeRoles in cdk.json"


class InstallationSettings(NamedTuple):
    """Settings of the installation that old objects relied on; empty if unknown."""

    kubernetes: str = ""
    """The cluster's version, such as 1.31."""
    role: str = ""
    """The role of nodes if the object names no role and no instance profile."""
    instance_profile: str = ""
    """The instance profile of such nodes, as old installations configured it. It takes precedence over `role`."""
    for_files: bool = False
    """Whether the result is written to files, which must name a role. Objects that functions read need not."""


UNKNOWN = InstallationSettings()


def nodeclass_of_template(old: SourceObject, installation: InstallationSettings) -> Draft:
    """Convert an AWSNodeTemplate."""
    draft = Draft(old, *EC2_NODE_CLASS)
    old.refuse_unknown("spec", FIELDS)
    _fill(draft, installation)
    return draft


def nodeclass_of_provider(provisioner: SourceObject, name: str, installation: InstallationSettings) -> Draft:
    """Convert the `provider` of a Provisioner."""
    inner = entries(provisioner.spec.get("provider"))
    old = SourceObject(provisioner.number, {**provisioner.manifest, "spec": inner})
    draft = Draft(old, *EC2_NODE_CLASS, name)
    old.refuse_unknown("spec", (*FIELDS, *_INLINE))
    _fill(draft, installation)
    for change in old.changes:
        provisioner.changes.append(change._replace(field=_inside(change.field)))
    draft.origins = {
        target: origin._replace(field=_inside(origin.field) if origin.field else "")
        for target, origin in draft.origins.items()
    }
    return draft


def _inside(field: str) -> str:
    return "spec.provider" + field.removeprefix("spec")


def _fill(draft: Draft, installation: InstallationSettings) -> None:
    for name, subject in (("subnetSelector", "subnets"), ("securityGroupSelector", "security groups")):
        if draft.old.spec.get(name) is None:
            reason = f"is missing: it selects the {subject} of nodes by their tags or IDs"
            draft.refuse(f"spec.{name}Terms", f"spec.{name}", reason)
        carry_selector(draft, f"spec.{name}", f"spec.{name}Terms")
    carry_images(draft)
    for name in CARRIED:
        draft.carry(f"spec.{name}", f"spec.{name}")
    choose_images(draft, installation)
    keep_hop_limit(draft)
    _choose_role(draft, installation)
    for name in ("launchTemplate", "launchTemplateName"):
        if draft.old.spec.get(name) is not None:
            reason = "has no equivalent: launch templates are created from the other fields, so move its settings there"
            draft.old.note(FieldOutcome.REFUSED, f"spec.{name}", reason)


def keep_hop_limit(draft: Draft) -> None:
    """Keep the metadata service reachable for containers: the default was 2 hops and is now 1."""
    if draft.get("spec.metadataOptions") is None:
        draft.add(
            "spec.metadataOptions", {"httpPutResponseHopLimit": 2}, "was 2 hops by default, and is 1 today"
        )


def _choose_role(draft: Draft, installation: InstallationSettings) -> None:
    """Set the nodes' role if the object names none: the one in `installation`, else the cluster's first node role.

    A file must name a role, so there it is the role of Karpenter's getting-started guide.
    """
    if draft.get("spec.instanceProfile") is not None:
        return
    field = "spec.instanceProfile"
    reason = "is missing, and was set for the whole installation (aws.defaultInstanceProfile)"
    if installation.instance_profile:
        draft.add(field, installation.instance_profile, reason)
    elif installation.role:
        draft.add("spec.role", installation.role, reason)
    elif not installation.for_files:
        annotations = entries(draft.body["metadata"].get("annotations"))
        draft.body["metadata"]["annotations"] = {**annotations, DEFAULT_ROLE: "true"}
        draft.old.note(
            FieldOutcome.ALTERED,
            field,
            f"is missing: nodes get the cluster's first node role ({_NODE_ROLES})",
        )
    elif role := _guide_role(draft.get("spec.subnetSelectorTerms")):
        draft.put("spec.role", role)
        assumption = f"{reason}: assumed to be the role {role}, as in Karpenter's guide. Check that it exists"
        draft.old.note(FieldOutcome.ALTERED, field, assumption)
    else:
        remedy = "set it here, or set a role with --role. If applied as it is, nodes get the cluster's first node role"
        draft.old.note(FieldOutcome.REFUSED, field, f"{reason}: {remedy}")


def _guide_role(terms: Any) -> str:
    for term in terms if isinstance(terms, list) else ():
        cluster = entries(entries(term).get("tags")).get(_DISCOVERY)
        if isinstance(cluster, str) and cluster not in {"", "*"}:
            return _GUIDE_ROLE + cluster
    return ""


_IMAGE_TERMS = "spec.amiSelectorTerms"


def nodeclass(old: SourceObject, installation: InstallationSettings) -> Draft:
    """Convert an EC2NodeClass."""
    draft = Draft.of(old, EC2_NODE_CLASS[1])
    is_old = old.manifest.get("apiVersion") not in {EC2_NODE_CLASS[1], None}
    family = draft.get("spec.amiFamily")
    if family == "Ubuntu" or (draft.get(_IMAGE_TERMS) is None and (family is not None or is_old)):
        if draft.get(_IMAGE_TERMS) is None:
            draft.take("spec.amiFamily")
        choose_images(draft, installation)
    if is_old:
        keep_hop_limit(draft)
    return draft


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


def choose_images(draft: Draft, installation: InstallationSettings) -> None:
    """Set amiFamily and, if no images are selected, the alias of the family's own images.

    An unknown version of Kubernetes is taken to be new.
    """
    family = _family(draft)
    selected = draft.get(_TERMS)
    if family is not None and not isinstance(family, str):
        draft.put(_FAMILY, family, _FAMILY)
    elif family == "Ubuntu":
        _ubuntu(draft, selected, for_files=installation.for_files)
    elif selected is not None:
        _selected(draft, family, selected)
    elif family in _ALIASES or family is None:
        _alias(draft, family, installation.kubernetes)
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
        subject = "is AL2" if family else "is missing, and AL2 was the default"
        reason = (
            f"{subject}: there are no AL2 images for Kubernetes 1.33 and later, so nodes get Amazon Linux 2023. "
            "Check user data and anything that relies on cgroup v1 or yum"
        )
        draft.old.note(FieldOutcome.ALTERED, _FAMILY, reason)
    else:
        subject = f"was {family}" if family else "was not given"
        reason = f"{subject}, without a selector: images of the alias {name}@{version or 'latest'}"
        draft.old.note(FieldOutcome.MOVED if family else FieldOutcome.ADDED, _FAMILY, reason)
    draft.put(_TERMS, [{"alias": f"{name}@{version or 'latest'}"}], field)


def _has_al2(kubernetes: str) -> bool:
    major, _, minor = kubernetes.partition(".")
    is_version = major.isdigit() and minor.isdigit() and len(kubernetes) <= 8
    return is_version and (int(major), int(minor)) <= _LAST_AL2


def _ubuntu(draft: Draft, selected: Any, *, for_files: bool) -> None:
    """Convert Ubuntu, which is no longer a family: it uses AL2's user data and its own root device.

    Its images must be selected. In files, the family stays until they are: with AL2 in its place, the file would be
    valid, and launch AL2's images.
    """
    draft.put(_FAMILY, "Ubuntu" if for_files and selected is None else "AL2", _FAMILY)
    draft.old.note(FieldOutcome.ALTERED, _FAMILY, "is Ubuntu, which uses user data in the format of AL2")
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
    value = draft.old.get(_FAMILY)
    if not isinstance(value, str) or value in _FAMILIES:
        return value
    corrected = next((name for name in _FAMILIES if name.lower() == value.lower()), None)
    if corrected:
        draft.old.note(FieldOutcome.REPAIRED, _FAMILY, f"is {value}, and is read as {corrected}")
    return corrected or value


_SPECIAL = {"aws-ids": "id", "aws::ids": "id", "aws::name": "name", "aws::owners": "owner"}
_MOST_TERMS = 30


def carry_selector(draft: Draft, field: str, target: str) -> None:
    """Set the terms that a selector is equivalent to. A selector that is not a map of text is kept and refused."""
    original = draft.old.get(field)
    if original is None:
        return
    selector = _of_text(draft, original, field)
    if selector is None:
        draft.put(target, original, field)
        reason = "must be a map of text, such as {karpenter.sh/discovery: my-cluster}"
        draft.refuse(target, field, reason)
        return
    terms = _terms(draft, selector, field)
    draft.put(target, terms, field)
    draft.origins |= {f"{target}[{n}].tags": Origin(draft.old.number, field) for n in range(len(terms))}
    draft.old.note(FieldOutcome.MOVED, field, f"is {target}, a term for each alternative")


def _of_text(draft: Draft, original: object, field: str) -> Mapping[str, str] | None:
    """Return a selector with comma-separated alternatives, also for lists; None if it is not a map of text."""
    texts: dict[str, str] = {}
    for key, value in entries(original).items():
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            texts[key] = ",".join(value)
            draft.old.note(
                FieldOutcome.REPAIRED, f"{field}[{key}]", f"is a list, and is read as {texts[key]}"
            )
        elif isinstance(value, str):
            texts[key] = value
        else:
            return None
    return texts if isinstance(original, Mapping) else None


def _terms(draft: Draft, selector: Mapping[str, str], field: str) -> list[dict[str, Any]]:
    special: dict[str, list[str]] = {}
    tags: dict[str, list[str]] = {}
    for key, text in selector.items():
        alternatives = [value for value in map(str.strip, text.split(",")) if value] or ["*"]
        if key in _SPECIAL:
            special.setdefault(_SPECIAL[key], []).extend(alternatives)
        else:
            tags[key] = alternatives
    if "id" in special:
        return _by_id(draft, special, tags, field)
    if prod(map(len, (*special.values(), *tags.values()))) > _MOST_TERMS:
        draft.old.note(
            FieldOutcome.REFUSED,
            field,
            f"has more than {_MOST_TERMS} combinations of values: give fewer alternatives",
        )
        return []
    return [
        {**dict(zip(special, combination, strict=False)), **_tags(tags, combination[len(special) :])}
        for combination in product(*special.values(), *tags.values())
    ]


def _tags(tags: Mapping[str, list[str]], combination: tuple[str, ...]) -> dict[str, Any]:
    return {"tags": dict(zip(tags, combination, strict=True))} if tags else {}


def _by_id(
    draft: Draft, special: Mapping[str, list[str]], tags: Mapping[str, list[str]], field: str
) -> list[dict[str, Any]]:
    if tags or len(special) > 1:
        others = ", ".join((*(name for name in special if name != "id"), *tags))
        draft.old.note(
            FieldOutcome.REFUSED,
            field,
            f"combines ids with {others}: ids must be alone, so remove the others",
        )
    return [{"id": id_} for id_ in dict.fromkeys(special["id"])]


def carry_images(draft: Draft) -> None:
    """Set the terms of an amiSelector. A name without an owner selects images of this account and Amazon, as in v1."""
    field, target = "spec.amiSelector", "spec.amiSelectorTerms"
    carry_selector(draft, field, target)
    for key in entries(draft.old.get(field)):
        if key in WELL_KNOWN:
            reason = "was also a requirement of the image, and is only a tag today"
            draft.old.note(FieldOutcome.ALTERED, f"{field}[{key}]", reason)
