"""When Nodes or NodeClaims change, or on a tick: advance every NodeClaim by a step."""

from nodesmith import runtime

handler = runtime.lifecycle()
