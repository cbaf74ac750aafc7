"""Column generation: the cheapest combination of patterns, by linear programming."""
