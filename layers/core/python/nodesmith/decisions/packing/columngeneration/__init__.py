"""Column generation: the cheapest mix of patterns, by linear programming."""
