"""Launching nodes: commit intents, call EC2, and publish Events on pods."""
