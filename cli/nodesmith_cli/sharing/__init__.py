"""Clusters that nodesmith shares with EKS Auto Mode, Karpenter or other software: ownership and removal.

`ownership` reads the cluster, `findings` evaluates it, and `removal` removes nodesmith without touching the rest.
"""
