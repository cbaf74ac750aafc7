"""Kubernetes objects: pods, nodes, PodDisruptionBudgets, Events, and shapes, which identical pods share."""
