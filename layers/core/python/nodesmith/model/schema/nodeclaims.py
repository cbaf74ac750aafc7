"""What a NodeClaim may say."""

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
                {"requests": Map(Quantity(), "Least that the node must offer to pods.")},
                "What the node must be large enough for.",
            ),
            "expireAfter": EXPIRE_AFTER,
            "terminationGracePeriod": TERMINATION_GRACE_PERIOD,
        },
        "What the node is to be.",
        required=("requirements", "nodeClassRef"),
        rules=(Rule("self == oldSelf", "a NodeClaim cannot be changed, make a new one", None), TAINTS_DIFFER),
    ),
    "One node that is to exist.",
)
