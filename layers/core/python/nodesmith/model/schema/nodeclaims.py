"""Schema of a NodeClaim."""

from __future__ import annotations

from nodesmith.model.schema.fields import Kind, Map, Object, Quantity, Rule
from nodesmith.model.schema.nodespec import (
    CLAIM_REQUIREMENTS,
    EXPIRE_AFTER,
    NODE_CLASS_REF,
    STARTUP_TAINTS,
    TAINTS,
    TAINTS_DIFFER,
    TERMINATION_GRACE_PERIOD,
)

NODE_CLAIM = Kind(
    "karpenter.sh",
    "NodeClaim",
    "nodeclaims",
    Object(
        {
            "requirements": CLAIM_REQUIREMENTS,
            "nodeClassRef": NODE_CLASS_REF,
            "taints": TAINTS,
            "startupTaints": STARTUP_TAINTS,
            "resources": Object(
                {"requests": Map(Quantity(), "Minimum resources that the node must offer to pods.")},
                "Resources that the node must provide.",
            ),
            "expireAfter": EXPIRE_AFTER,
            "terminationGracePeriod": TERMINATION_GRACE_PERIOD,
        },
        "Desired state of the node.",
        required=("requirements", "nodeClassRef"),
        rules=(
            Rule("self == oldSelf", "a NodeClaim cannot be changed; create a new one", None),
            TAINTS_DIFFER,
        ),
    ),
    "A request for one node.",
)
