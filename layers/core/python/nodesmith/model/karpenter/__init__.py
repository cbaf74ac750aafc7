"""Karpenter's objects: NodePools and NodeClaims."""
