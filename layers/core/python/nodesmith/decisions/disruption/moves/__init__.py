"""Moves in progress: the next step of each."""
