"""Search for the best plan: make several plans with other choices, bound them from below, and keep the best."""
