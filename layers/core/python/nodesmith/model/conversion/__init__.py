"""Manifests of every age → karpenter.sh/v1: one place for what comes from files and what comes from a cluster.

`converting` takes whole sets of objects, since one of today may be made of two of yesterday. Each old kind has its
module with the table of its fields; `labelkeys` knows old and mistaken label keys and values, `pods` what of them
workloads use. The converter moves, and says so; whether a value is right is judged where v1 is read. Nothing raises,
whatever JSON or YAML it is given, and an object of today that needs nothing is handed back as it is.
"""
