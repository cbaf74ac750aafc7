"""A cluster that nodesmith shares with EKS Auto Mode, Karpenter or other software: what is whose, and removal.

`survey` reads the cluster, `findings` judges what was read, `removal` takes nodesmith out and leaves the rest alone.
"""
