"""Convert an AWSNodeTemplate of karpenter.k8s.aws/v1alpha1, or a Provisioner's `provider`, to an EC2NodeClass."""

from __future__ import annotations

from typing import Any, NamedTuple

from nodesmith.model.conversion.changes import Fate
from nodesmith.model.conversion.drafts import Draft, Old, entries
from nodesmith.model.conversion.images import choose_images
from nodesmith.model.conversion.selectorterms import carry_images, carry_selector
from nodesmith.model.nodeclasses.nodeclasses import DEFAULT_ROLE

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


class Surroundings(NamedTuple):
    """Settings of the installation that old objects relied on; empty if unknown."""

    kubernetes: str = ""
    """The cluster's version, such as 1.31."""
    role: str = ""
    """The role of nodes whose object names neither a role nor an instance profile."""
    instance_profile: str = ""
    """The instance profile of such nodes, as old installations configured it. It takes precedence over `role`."""
    for_files: bool = False
    """Whether the result is written to files, which must name a role. Objects that functions read need not."""


UNKNOWN = Surroundings()


def nodeclass_of_template(old: Old, around: Surroundings) -> Draft:
    """Convert an AWSNodeTemplate."""
    draft = Draft(old, *EC2_NODE_CLASS)
    old.refuse_unknown("spec", FIELDS)
    _fill(draft, around)
    return draft


def nodeclass_of_provider(provisioner: Old, name: str, around: Surroundings) -> Draft:
    """Convert the `provider` of a Provisioner."""
    inner = entries(provisioner.spec.get("provider"))
    old = Old(provisioner.number, {**provisioner.manifest, "spec": inner})
    draft = Draft(old, *EC2_NODE_CLASS, name)
    old.refuse_unknown("spec", (*FIELDS, *_INLINE))
    _fill(draft, around)
    for change in old.changes:
        provisioner.changes.append(change._replace(field=_inside(change.field)))
    draft.origins = {
        target: origin._replace(field=_inside(origin.field) if origin.field else "")
        for target, origin in draft.origins.items()
    }
    return draft


def _inside(field: str) -> str:
    return "spec.provider" + field.removeprefix("spec")


def _fill(draft: Draft, around: Surroundings) -> None:
    for name, what in (("subnetSelector", "subnets"), ("securityGroupSelector", "security groups")):
        if draft.old.spec.get(name) is None:
            why = f"is missing: it selects the {what} of nodes by their tags or IDs"
            draft.refuse(f"spec.{name}Terms", f"spec.{name}", why)
        carry_selector(draft, f"spec.{name}", f"spec.{name}Terms")
    carry_images(draft)
    for name in CARRIED:
        draft.carry(f"spec.{name}", f"spec.{name}")
    choose_images(draft, around.kubernetes)
    keep_hop_limit(draft)
    _choose_role(draft, around)
    for name in ("launchTemplate", "launchTemplateName"):
        if draft.old.spec.get(name) is not None:
            why = "has no equivalent: launch templates are created from the other fields, so move its settings there"
            draft.old.note(Fate.REFUSED, f"spec.{name}", why)


def keep_hop_limit(draft: Draft) -> None:
    """Keep the metadata service reachable for containers: the default was 2 hops and is now 1."""
    if draft.get("spec.metadataOptions") is None:
        draft.add(
            "spec.metadataOptions", {"httpPutResponseHopLimit": 2}, "was 2 hops by default, and is 1 today"
        )


def _choose_role(draft: Draft, around: Surroundings) -> None:
    """Set the nodes' role if the object names none: the one in `around`, else the cluster's first node role.

    A file must name a role, so there it is the role of Karpenter's getting-started guide.
    """
    if draft.get("spec.instanceProfile") is not None:
        return
    field = "spec.instanceProfile"
    why = "is missing, and was set for the whole installation (aws.defaultInstanceProfile)"
    if around.instance_profile:
        draft.add(field, around.instance_profile, why)
    elif around.role:
        draft.add("spec.role", around.role, why)
    elif not around.for_files:
        annotations = entries(draft.body["metadata"].get("annotations"))
        draft.body["metadata"]["annotations"] = {**annotations, DEFAULT_ROLE: "true"}
        draft.old.note(
            Fate.ALTERED, field, f"is missing: nodes get the cluster's first node role ({_NODE_ROLES})"
        )
    elif role := _guide_role(draft.get("spec.subnetSelectorTerms")):
        draft.put("spec.role", role)
        taken = f"{why}: assumed to be the role {role}, as in Karpenter's guide. Check that it exists"
        draft.old.note(Fate.ALTERED, field, taken)
    else:
        remedy = "set it here, or set a role with --role. If applied as it is, nodes get the cluster's first node role"
        draft.old.note(Fate.REFUSED, field, f"{why}: {remedy}")


def _guide_role(terms: Any) -> str:
    for term in terms if isinstance(terms, list) else ():
        cluster = entries(entries(term).get("tags")).get(_DISCOVERY)
        if isinstance(cluster, str) and cluster not in {"", "*"}:
            return _GUIDE_ROLE + cluster
    return ""
