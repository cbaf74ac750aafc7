"""Cost allocation of one hour: what nodes cost, and whose pods bear it."""
