"""When Nodes or NodeClaims change, or on a tick: advance every NodeClaim by a step."""

from nodesmith.composition import runtime

handler = runtime.lifecycle()
