"""Prometheus series, and the objects in which functions keep them for the forwarder."""
