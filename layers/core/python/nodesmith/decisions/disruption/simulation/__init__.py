"""Simulation: where the pods of some nodes would go without these nodes."""
