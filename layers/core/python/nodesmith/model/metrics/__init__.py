"""Metrics as Prometheus has them, and the objects by which they reach the forwarder."""
