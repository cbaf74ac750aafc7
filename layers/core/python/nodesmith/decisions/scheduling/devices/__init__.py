"""Devices of dynamic resource allocation: what claims allocate, and what that means for nodes."""
