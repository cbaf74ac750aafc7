"""Reduction of objects to what decisions read."""
