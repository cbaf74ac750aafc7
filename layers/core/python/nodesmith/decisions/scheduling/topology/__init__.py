"""Where pods are, and which domains others may have."""
