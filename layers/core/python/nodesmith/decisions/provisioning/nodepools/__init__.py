"""NodePools: which of them may buy, in which order, what is on sale for them, and static ones."""
