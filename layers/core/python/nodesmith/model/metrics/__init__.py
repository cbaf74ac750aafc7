"""Prometheus metrics, and the objects in which they reach the forwarder."""
