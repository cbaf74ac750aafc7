"""Coming from other autoscalers: `nodesmith migrate` from node groups, `adopt` and `release` from and to Karpenter."""
