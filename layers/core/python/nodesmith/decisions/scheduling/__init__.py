"""Scheduling: decide where pods may run: on which existing or in-flight nodes, in which zones, on which instance types.

This package decides which nodes a pod may use. Choosing which of the allowed nodes to buy is the job of `packing`.
docs/algorithms/scheduling.md walks through the algorithm with an example.
"""
