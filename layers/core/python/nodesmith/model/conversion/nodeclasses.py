"""Convert an EC2NodeClass of karpenter.k8s.aws/v1beta1, or of v1 with v1beta1 fields, to v1."""

from __future__ import annotations

from nodesmith.model.conversion.drafts import Draft, Old
from nodesmith.model.conversion.images import choose_images
from nodesmith.model.conversion.nodetemplates import EC2_NODE_CLASS, keep_hop_limit

_TERMS = "spec.amiSelectorTerms"


def nodeclass(old: Old, kubernetes: str) -> Draft:
    """Convert an EC2NodeClass. `kubernetes` is the cluster's version, empty if unknown."""
    draft = Draft.of(old, EC2_NODE_CLASS[1])
    is_old = old.manifest.get("apiVersion") not in {EC2_NODE_CLASS[1], None}
    family = draft.get("spec.amiFamily")
    if family == "Ubuntu" or (draft.get(_TERMS) is None and (family is not None or is_old)):
        if draft.get(_TERMS) is None:
            draft.take("spec.amiFamily")
        choose_images(draft, kubernetes)
    if is_old:
        keep_hop_limit(draft)
    return draft
