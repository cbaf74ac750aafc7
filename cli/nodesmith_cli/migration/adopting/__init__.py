"""Takeover of Karpenter's nodes, and their return: an assessment of what exists, and the steps in order.

`assessment` compares NodeClaims, instances and the ledger, `adopt` and `release` change them, and the commands ask and
print.
"""
