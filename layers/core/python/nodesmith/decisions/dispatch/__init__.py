"""Which concerns dispatch wakes, and what is wrong with a deployment."""
