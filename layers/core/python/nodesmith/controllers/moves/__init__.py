"""Moves are carried out, a step at a time."""
