"""Takeover of Karpenter's nodes, and their return: what exists, what becomes of it, and the steps in order.

`assessment` compares NodeClaims, instances and the ledger, `adopt` and `release` change them, and the commands ask and
print.
"""
